/// The tests of sharded results have been seen to fail: every call left out, and every message corrupted, in
/// every chapter and variant, is noticed by the exact comparison of a step, or of the step after it. Built
/// once for each folder in chapters/.

#include "emu/faults.hpp"

#include <cmath>

#include "engine/workloads/random.hpp"
#include "tests/equivalence/equivalence.hpp"
#include "tests/harness/catch.hpp"

namespace shard::testing {

const testing::RunsOn runs_on({2, 3, 5});

namespace {

/// An exact problem in which everything matters on every device: positive throughout, so that no ReLU masks
/// what went wrong before it; even layers dense, so that any column of them reads every input; odd layers
/// with two ones or more in each row and column, so that sums stay exact. (A number that only a dead hidden
/// unit reads has no influence on any result, and no comparison could notice it.)
ExactProblem live_stack(const Model& model, Index batch) {
  ExactProblem problem = make_exact_problem(model, batch, 3);
  for (Index l = 0; l < model.num_layers; ++l) {
    HostTensor& w = problem.weights.at(layer_name(l));
    Index period = std::min(w.shape[0], w.shape[1]);
    for (Index i = 0; i < num_elements(w.shape); ++i) {
      Index distance = (i / w.shape[1] - i % w.shape[1] + num_elements(w.shape)) % period;
      bool is_dense = l % 2 == 0 && model.num_layers <= 6;  // deeper, sums would not be exact
      Index diagonals = model.num_layers <= 10 ? 2 : 1;
      w.values[static_cast<std::size_t>(i)] = is_dense || distance < diagonals ? 1.0F : 0.0F;
    }
  }
  CounterRandom random(3, "positive");
  std::uint64_t i = 0;
  for (float& pixel : problem.input.values) pixel = static_cast<float>(random.integer(i++, 1, 16));
  for (float& gradient : problem.output_grad.values) gradient = static_cast<float>(random.integer(i++, 1, 2));
  return problem;
}

/// The same for whatever the chapter trains.
ExactProblem live_problem(const Case& c) {
  const Network network = this_chapter().network;
  if (!network.live_problem) return live_stack(c.model, c.batch);
  return network.live_problem(c.model.num_layers, c.options.routing, world().num_devices());
}

/// w <- w / 2, whatever the gradient; but a router stays, as its gates would not stay exact.
class HalvingOptimizer : public Optimizer {
 protected:
  void update(const Trainable& t) override {
    if (t.name == router_name()) return;
    Tensor w = slice(*t.parameter.tensor, 0, t.parameter.begin, t.parameter.end);
    sgd_update(t.parameter, w, 0.5F);
  }
};

/// The same results with halved weights, exactly: each of L layers halves output and dL/dx, and all layers
/// but its own halve the gradient of a layer's weights.
std::map<std::string, HostTensor> with_halved_weights(std::map<std::string, HostTensor> results,
                                                      Index num_layers) {
  for (auto& [name, tensor] : results) {
    bool is_of_weights = name != "output" && name != Gradients::input_grad;
    auto factor = static_cast<float>(std::exp2(is_of_weights ? 1 - num_layers : -num_layers));
    for (float& value : tensor.values) value *= factor;
  }
  return results;
}

/// What the step after the optimizer's is to give. A mixture's solver takes halves as they are.
std::map<std::string, HostTensor> after_halving(ExactProblem problem,
                                                const std::map<std::string, HostTensor>& results) {
  const Network network = this_chapter().network;
  if (!network.has_experts) return with_halved_weights(results, problem.model.num_layers);
  for (auto& [name, w] : problem.weights)
    for (float& value : w.values)
      if (name != router_name()) value /= 2;
  return network.solve(problem);
}

/// Whether any device says so. A control message.
bool any_device(bool mine) {
  return std::ranges::max(world().exchange("noticed", mine ? 1 : 0)) > 0;
}

/// A step, and, if that is as expected on every device, a second one after the optimizer's: whether anything
/// differs from what was expected.
bool two_steps_differ(ShardedEngine& engine, const ExactProblem& problem,
                      const std::map<std::string, HostTensor>& expected) {
  Results first = run_step(engine, problem.input, problem.output_grad);
  if (any_device(!first_difference(compare_all(first, expected)).empty())) return true;
  HalvingOptimizer().step(engine, first.gradients);
  Results second = run_step(engine, problem.input, problem.output_grad);
  return !first_difference(compare_all(second, after_halving(problem, expected))).empty();
}

/// Whether, on any device, the comparison notices what was planted.
bool is_noticed(const Variant& variant, const Case& c, const ExactProblem& problem,
                const std::map<std::string, HostTensor>& expected, const emu::Faults& faults) {
  std::unique_ptr<ShardedEngine> engine = make_engine(variant, c.options, problem);
  emu::plant_faults(faults);
  bool differs = false;
  try {
    differs = two_steps_differ(*engine, problem, expected);
  } catch (const Error& error) {
    differs =
        error.code() == Code::internal || error.code() == Code::argument;  // a shape that no longer fits
  }
  emu::plant_faults({});
  return any_device(differs);
}

/// A step without faults, the optimizer's included: how many calls there are, and messages with content from
/// each device. (The second step makes the same again.)
void count(const Variant& variant, const Case& c, const ExactProblem& problem, Index& calls,
           std::vector<Index>& messages) {
  std::unique_ptr<ShardedEngine> engine = make_engine(variant, c.options, problem);
  emu::plant_faults({});
  HalvingOptimizer().step(*engine, run_step(*engine, problem.input, problem.output_grad).gradients);
  calls = std::ranges::max(world().exchange("calls", emu::calls_made()));
  messages = world().exchange("messages", emu::messages_sent());
}

/// Depths to plant faults in: a pipeline's fewest, which is deep, and one more.
std::vector<Index> depths(const Variant& variant) {
  const Index fewest = variant.min_layers(world().num_devices(), options_of(variant).back());
  return fewest > 1 ? std::vector<Index>{fewest, fewest + 1} : std::vector<Index>{2, 3, 6};
}

}  // namespace

TEST_CASE("every call left out and every message corrupted is noticed") {
  const Index n = world().num_devices();
  if (n == 1) return;  // nothing is sent
  Chapter chapter = this_chapter();
  Index planted = 0;
  for (const Variant& variant : chapter.variants)
    for (Index layers : depths(variant)) {
      // All slices alike, so that a shape that no longer fits is one on every device at once; and a row in
      // each of three pieces of a device's rows, as what is done for an empty piece has no influence on any
      // result.
      Case c{{layers, n, 2 * n}, 3 * n, options_of(variant).back()};
      if (variant.top_k > 0) c.options.routing.top_k = variant.top_k;
      CAPTURE(variant.name, layers);
      ExactProblem problem = live_problem(c);
      std::map<std::string, HostTensor> expected = chapter.network.solve(problem);
      CHECK_FALSE(is_noticed(variant, c, problem, expected, {}));
      Index calls = 0;
      std::vector<Index> messages;
      count(variant, c, problem, calls, messages);
      for (Index k = 0; k < calls; ++k, ++planted) {
        INFO("call " << k << " of " << calls << " left out");
        CHECK(is_noticed(variant, c, problem, expected, {k, std::nullopt, 0}));
      }
      for (int device = 0; device < n; ++device)
        for (Index k = 0; k < messages[static_cast<std::size_t>(device)]; ++k, ++planted) {
          INFO("message " << k << " of device " << device << " corrupted");
          CHECK(is_noticed(variant, c, problem, expected, {std::nullopt, k, device}));
        }
    }
  bool is_sharded = this_chapter().number != "01";
  CHECK((planted > 0) == is_sharded);
}

}  // namespace shard::testing
