/// The benchmark of one chapter, linked once for each folder in chapters/. It compares a step of every
/// variant (forward, a loss gradient as cheap as a copy, and backward) with its floor.

#include <algorithm>
#include <ranges>
#include <string>
#include <vector>

#include "engine/program/registry.hpp"
#include "tests/benchmarks/backend.hpp"

namespace shard::bench {

namespace {

std::string name_of(Precision p) {
  return p == Precision::float32 ? "float32" : p == Precision::tf32 ? "tf32" : "bf16";
}

/// A variant with a network and its settings.
struct Case {
  const Variant& variant;
  Network network;
  Precision precision;
  std::string mesh;

  std::string network_name() const {
    return fmt::format("{}x{}x{}", network.batch, network.model_dim, network.hidden_dim);
  }
};

/// Whether a variant works in pieces by default. Here a device works on all its rows at once, as its floor does.
bool is_pipeline(const std::string& variant) {
  static const std::vector<std::string> names = {"1f1b",        "gpipe",       "naive",
                                                 "zero-bubble", "interleaved", "data-pipeline-tensor"};
  return std::ranges::any_of(names, [&](const std::string& name) { return variant.ends_with(name); });
}

/// The options of the benchmark. \throws Error usage for a mesh with a variant that has none
shard::Options options_of(const Case& c) {
  shard::Options options;
  if (is_pipeline(c.variant.name)) options.set("--micro-batches", "1");
  if (c.mesh.empty()) return options;
  if (!c.variant.has_option("--mesh"))
    throw Error(Code::usage, "--mesh: expected with a variant that has it, given " + c.mesh);
  options.set("--mesh", c.mesh);
  return options;
}

std::shared_ptr<Workload> network_of(const Case& c, Index layers) {
  return c.variant.workload->sized(layers, c.network.model_dim, c.network.hidden_dim);
}

/// An engine of this network on this group. \throws Error usage when the variant refuses it
std::unique_ptr<ShardedEngine> make_engine(Communicator& group, const Case& c, const Workload& network) {
  const shard::Options options = options_of(c);
  if (c.variant.require) c.variant.require(group.num_devices(), network, options);
  std::unique_ptr<ShardedEngine> engine = c.variant.make(group, network, options);
  engine->load_checkpoint(*generate_checkpoint(network.parameters(), 1));
  return engine;
}

/// This device's rows of a random batch. A row may have several tokens.
Tensor random_input(const ShardedEngine& engine, const Workload& network, Index tokens) {
  const Index rows = std::max<Index>(tokens / network.output_shape(1)[0], 1);
  const HostTensor batch = network.random_input(rows, 1);
  const Range mine = engine.input_rows(rows);
  return slice(Tensor::from_host(batch.shape, batch.values), 0, mine.begin, mine.end);
}

void measure_step(Communicator& world, const Chapter& chapter, const Case& c, const Options& options,
                  Results& results) {
  set_precision(c.precision);
  const std::unique_ptr<Recorder> recorder = make_recorder(world);
  const std::shared_ptr<Workload> network = network_of(c, options.layers);
  std::unique_ptr<ShardedEngine> engine = make_engine(recorder->group(), c, *network);
  const Tensor source = random_input(*engine, *network, c.network.batch);
  Tensor input;
  const Side ours = {[&] { input = source.clone(); },
                     [&] {
                       engine->forward_backward(std::move(input),
                                                [](const Tensor& out, Index) { return out.clone(); });
                       world.synchronize();
                     }};
  ours.prepare();
  const std::int64_t flops_before = ledger().flops();
  const std::unique_ptr<Floor> floor = recorder->floor_of(ours.call);
  const auto flops = static_cast<double>(ledger().flops() - flops_before);
  const Side lowest = {[&] { floor->prepare(); }, [&] { floor->run(); }};
  const Pair pair = measure(ours, lowest, options);
  const double share = 1 / pair.ratio();
  const std::optional<double> least = least_share(chapter.number, c.network, c.precision);
  const std::string rule = least ? results.bar(fmt::format("share >= {}", *least), share >= *least) : "";
  results.print(fmt::format("{} {:<15} {:<7} {:>15} {} {} {:>6.3f} {:>8.1f}   {:<40} {}\n", chapter.number,
                            c.variant.name, name_of(c.precision), c.network_name(), pair.ours.text(),
                            pair.reference.text(), share, flops / pair.ours.median / 1e3,
                            floor->products_by(), rule));
  results.add("chapters", {{"chapter", chapter.number},
                           {"variant", c.variant.name},
                           {"precision", name_of(c.precision)},
                           {"network", c.network_name()},
                           {"layers", options.layers},
                           {"flops", flops},
                           {"share", share},
                           {"floor_by", floor->products_by()},
                           {"bar", rule},
                           {"times", pair}});
}

}  // namespace

void measure_all(Communicator& world, const Options& options, Results& results) {
  const Chapter& chapter = only_chapter();
  auto is_meant = [&](const Variant& v) { return options.variant.empty() || options.variant == v.name; };
  if (std::ranges::none_of(chapter.variants, is_meant)) return;
  results.print(fmt::format(
      "\nChapter {}, {}: forward and backward of {} layers against the floor. Medians in microseconds,\n"
      "distance of the quartiles; 10^9 operations/s of device 0\n"
      "{:<18} {:<7} {:>15} {:>15} {:>15} {:>6} {:>8}   {:<40} bar\n",
      chapter.number, chapter.title, options.layers, "variant", "", "network", "ours", "floor", "share",
      "Gflop/s", "products of the floor"));
  for (const Variant& variant : chapter.variants | std::views::filter(is_meant))
    for (const Precision precision : precisions())
      for (const Network& network : options.networks) try {
          measure_step(world, chapter, {variant, network, precision, options.mesh}, options, results);
        } catch (const Error& error) {
          if (error.code() != Code::usage) throw;  // no device can divide this network
          results.print(fmt::format("{} {:<15} left out: {}\n", chapter.number, variant.name, error.what()));
          results.add("left_out",
                      {{"chapter", chapter.number}, {"variant", variant.name}, {"reason", error.what()}});
        }
}

}  // namespace shard::bench
