/// Compares every optimizer with a copy of large buffers, since an update does little arithmetic on much
/// memory. Bytes are counted in the same way: each number read, and each number written.

#include "engine/engines/optimizer.hpp"
#include "engine/proof/costs.hpp"
#include "tests/benchmarks/backend.hpp"

namespace shard::bench {

namespace {

/// An engine with one parameter and its gradient.
class OneParameter : public ShardedEngine {
 public:
  OneParameter(Communicator& group, Index elements)
      : ShardedEngine(group), w_(group, random_tensor({elements})) {}

  void load_checkpoint(const Checkpoint&) override {}
  Placed forward(Tensor x) override { return Replicated(group(), std::move(x)); }
  Gradients backward(Tensor) override { return {}; }
  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override {
    Trainables all;
    all.add("w", w_);
    return all;
  }

 private:
  Replicated w_;
};

struct Candidate {
  const char* name;
  Index touched;  ///< numbers read and written for each parameter
};
const std::vector<Candidate> candidates = {{"sgd", 3},       // reads g, w; writes w
                                           {"adam", 7},      // reads g, m, v, w; writes m, v, w
                                           {"integer", 3}};  // as sgd

/// The numbers of parameters of an optimizer, and of elements of a copy.
struct Sizes {
  Index parameters = parameters_of_optimizers();
  Index copied = 4 * parameters;
};

/// 10^9 bytes a second.
double gigabytes_per_second(Index elements, double microseconds) {
  return static_cast<double>(elements * bytes_per_element) / microseconds / 1e3;
}

void measure_optimizer(Communicator& group, const Candidate& candidate, const Side& library, Sizes sizes,
                       const Options& options, Results& results) {
  OneParameter engine(group, sizes.parameters);
  Gradients gradients;
  gradients.put("w", Replicated(group, random_tensor({sizes.parameters})));
  std::unique_ptr<Optimizer> optimizer =
      make_optimizer(candidate.name, 1e-3F, [](const std::string&) { return false; });
  const Side ours = {[] {},
                     [&] {
                       optimizer->step(engine, gradients);
                       group.synchronize();
                     }};
  const Pair pair = measure(ours, library, options);
  const double our_speed = gigabytes_per_second(candidate.touched * sizes.parameters, pair.ours.median);
  const double copy_speed = gigabytes_per_second(2 * sizes.copied, pair.reference.median);
  const double share = our_speed / copy_speed;
  const bool is_adam = std::string_view(candidate.name) == "adam";
  const double least = least_share_of_adam();
  const std::string rule = is_adam ? results.bar(fmt::format("share >= {}", least), share >= least) : "";
  results.print(fmt::format("{:<10} {} {} {:>8.1f} {:>8.1f} {:>6.2f}   {}\n", candidate.name,
                            pair.ours.text(), pair.reference.text(), our_speed, copy_speed, share, rule));
  results.add("optimizers", {{"optimizer", candidate.name},
                             {"parameters", sizes.parameters},
                             {"gigabytes_per_second", our_speed},
                             {"copy_gigabytes_per_second", copy_speed},
                             {"share", share},
                             {"bar", rule},
                             {"times", pair}});
}

}  // namespace

void measure_all(Communicator& world, const Options& options, Results& results) {
  constexpr double mega = 1 << 20;
  Sizes sizes;
  if (options.is_quick) sizes = {sizes.parameters >> 10, sizes.copied >> 10};
  results.print(
      fmt::format("\nOptimizers: a step of {:.4g}M parameters, against a copy of {:.4g}M numbers. Medians in "
                  "microseconds,\n"
                  "distance of the quartiles; 10^9 bytes/s\n{:<10} {:>15} {:>15} {:>8} {:>8} {:>6}   bar\n",
                  static_cast<double>(sizes.parameters) / mega, static_cast<double>(sizes.copied) / mega, "",
                  "ours", "copy", "ours", "copy", "share"));
  const Tensor from = random_tensor({sizes.copied});
  Tensor to = from.clone();
  const Side library = {[] {},
                        [&] {
                          copy(to, from);
                          world.synchronize();
                        }};
  for (const Candidate& candidate : candidates)
    measure_optimizer(world, candidate, library, sizes, options, results);
}

}  // namespace shard::bench
