/// Every optimizer against a copy: an update does little arithmetic on much memory, so the best that it can
/// do is to touch its bytes as fast as a copy of large buffers does. Bytes are counted alike: each number
/// read, and each written.

#include <cstring>

#include "emu/memory.hpp"
#include "engine/costs.hpp"
#include "engine/optimizer.hpp"
#include "tests/benchmarks/bench.hpp"

namespace shard::bench {

namespace {

/// One parameter with its gradient, and nothing else of an engine.
class OneParameter : public ShardedEngine {
 public:
  explicit OneParameter(Index elements) : w_(random_tensor({elements})) {}

  void load_checkpoint(const Checkpoint&) override {}
  Placed forward(Tensor x) override { return Replicated(std::move(x)); }
  Gradients backward(Tensor) override { return {}; }
  Placement input_layout() const override { return Placement::replicated(); }
  std::vector<Trainable> trainable(const Gradients& gradients) override {
    return {{"w", Rows(w_), &gradients.local("w")}};
  }

 private:
  Tensor w_;
};

struct Candidate {
  const char* name;
  Index touched;  ///< numbers read and written for each parameter
};
const std::vector<Candidate> candidates = {{"sgd", 3},       // reads g, w; writes w
                                           {"adam", 7},      // reads g, m, v, w; writes m, v, w
                                           {"integer", 3}};  // as sgd

/// So many that nothing of them is found in a cache, as after the backward pass of a large network.
constexpr Index parameters = Index{4} << 20;
constexpr Index copied = Index{16} << 20;

/// 10^9 bytes a second.
double gigabytes_per_second(Index elements, double microseconds) {
  return static_cast<double>(elements * bytes_per_element) / microseconds / 1e3;
}

void measure_optimizer(const Candidate& candidate, const Side& copy, const Options& options,
                       Results& results) {
  OneParameter engine(parameters);
  Gradients gradients;
  gradients.put("w", Replicated(random_tensor({parameters})));
  std::unique_ptr<Optimizer> optimizer = make_optimizer(candidate.name, 1e-3F);
  const Side ours = {[] {}, [&] { optimizer->step(engine, gradients); }};
  const Pair pair = measure(ours, copy, options.is_quick ? Budget{0, 3, 3} : Budget{4, 21, 400});
  const double our_speed = gigabytes_per_second(candidate.touched * parameters, pair.ours.median);
  const double copy_speed = gigabytes_per_second(2 * copied, pair.reference.median);
  const double share = our_speed / copy_speed;
  const bool is_adam = std::string_view(candidate.name) == "adam";
  const std::string rule = is_adam ? bar("share >= 0.7", share >= 0.7) : "";
  print(fmt::format("{:<10} {} {} {:>8.1f} {:>8.1f} {:>6.2f}   {}\n", candidate.name, pair.ours.text(),
                    pair.reference.text(), our_speed, copy_speed, share, rule));
  results.add("optimizers", {{"optimizer", candidate.name},
                             {"parameters", parameters},
                             {"gigabytes_per_second", our_speed},
                             {"copy_gigabytes_per_second", copy_speed},
                             {"share", share},
                             {"bar", rule},
                             {"times", pair}});
}

}  // namespace

void measure_all(const Options& options, Results& results) {
  print(fmt::format(
      "\nOptimizers: a step of {}M parameters, against a copy of {}M numbers. Medians in microseconds,\n"
      "distance of the quartiles; 10^9 bytes/s\n{:<10} {:>15} {:>15} {:>8} {:>8} {:>6}   bar\n",
      parameters >> 20, copied >> 20, "", "ours", "copy", "ours", "copy", "share"));
  const Tensor from = random_tensor({copied});
  Tensor to = from.clone();
  const Side copy = {
      [] {},
      [&] { std::memcpy(Backend::data(to), Backend::data(from), static_cast<std::size_t>(from.bytes())); }};
  for (const Candidate& candidate : candidates) measure_optimizer(candidate, copy, options, results);
}

}  // namespace shard::bench
