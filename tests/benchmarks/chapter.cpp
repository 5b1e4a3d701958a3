/// The program of one chapter, built once for each folder in chapters/: a step of every variant, forward, a
/// loss gradient that costs a copy, and backward, against its floor.

#include "chapter.hpp"  // of the chapter that is measured: the build says which

#include "tests/benchmarks/bench.hpp"
#include "tests/benchmarks/floor.hpp"

namespace shard::bench {

namespace {

std::string bar_of(const std::string& network, double share) {
  if (network == "64x256x1024") return bar("share >= 0.8", share >= 0.8);
  if (network == "256x512x2048") return bar("share >= 0.9", share >= 0.9);
  return "";
}

void measure_step(const Chapter& chapter, const Variant& variant, const Network& n, const Options& options,
                  Results& results) {
  EngineOptions engine_options;
  if (variant.top_k > 0) engine_options.routing.top_k = variant.top_k;
  const Index num_experts = chapter.network.has_experts ? 4 : 0;
  std::unique_ptr<ShardedEngine> engine = variant.make(engine_options);
  engine->load_checkpoint(*generate_checkpoint({options.layers, n.model_dim, n.hidden_dim, num_experts}, 1));
  const Tensor source = random_tensor({engine->input_rows(n.batch).size(), n.model_dim});
  Tensor input;
  const Side ours = {[&] { input = source.clone(); },
                     [&] {
                       engine->forward_backward(std::move(input),
                                                [](const Tensor& out, Index) { return out.clone(); });
                     }};
  ours.prepare();
  const std::int64_t flops_before = ledger().flops();
  Floor floor(record(ours.call));
  const auto flops = static_cast<double>(ledger().flops() - flops_before);
  const Side lowest = {[&] { floor.prepare(); }, [&] { floor.run(); }};
  const Pair pair = measure(ours, lowest, options.is_quick ? Budget{0, 5, 5} : Budget{4, 31, 2000});
  const double share = 1 / pair.ratio();
  const std::string network = fmt::format("{}x{}x{}", n.batch, n.model_dim, n.hidden_dim);
  const std::string rule = bar_of(network, share);
  print(fmt::format("{} {:<15} {:>15} {} {} {:>6.3f} {:>8.1f}   {}\n", chapter.number, variant.name, network,
                    pair.ours.text(), pair.reference.text(), share, flops / pair.ours.median / 1e3, rule));
  results.add("chapters", {{"chapter", chapter.number},
                           {"variant", variant.name},
                           {"network", network},
                           {"layers", options.layers},
                           {"flops", flops},
                           {"share", share},
                           {"bar", rule},
                           {"times", pair}});
}

}  // namespace

void measure_all(const Options& options, Results& results) {
  const Chapter chapter = this_chapter();
  print(fmt::format(
      "\nChapter {}, {}: forward and backward of {} layers against the floor. Medians in microseconds,\n"
      "distance of the quartiles; 10^9 operations/s of device 0\n"
      "{:<18} {:>15} {:>15} {:>15} {:>6} {:>8}   bar\n",
      chapter.number, chapter.title, options.layers, "variant", "network", "ours", "floor", "share",
      "Gflop/s"));
  for (const Variant& variant : chapter.variants)
    for (const Network& network : options.networks) try {
        measure_step(chapter, variant, network, options, results);
      } catch (const Error& error) {
        if (error.code() != Code::usage) throw;  // a network that the chapter cannot divide, on no device
        print(fmt::format("{} {:<15} left out: {}\n", chapter.number, variant.name, error.what()));
        results.add("left_out",
                    {{"chapter", chapter.number}, {"variant", variant.name}, {"reason", error.what()}});
      }
}

}  // namespace shard::bench
