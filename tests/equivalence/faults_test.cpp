/// Shows that the tests of sharded results can fail. In every variant, each call is left out once, and each
/// message is corrupted once. The exact comparison of a step, or of the step after it, must notice it.

#include "tests/equivalence/equivalence.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/planted_faults.hpp"

namespace shard::testing {

RUNS_ON(.in_one_process = {2, 3}, .with_all = {4});

namespace {

HalvingOptimizer halving_optimizer(const Workload& network) {
  return HalvingOptimizer([&network](const std::string& name) { return network.must_stay(name); });
}

/// Whether any device passes true. A control message.
bool any_device(bool mine) {
  return std::ranges::max(group().exchange("noticed", mine ? 1 : 0)) > 0;
}

/// Whether the results of a step differ on any device, or else those of a second step, after the optimizer.
bool two_steps_differ(ShardedEngine& engine, const ExactProblem& problem, const Solution& expected,
                      const Solution& after_halving) {
  Results first = run_step(engine, problem.input, problem.output_grad);
  if (any_device(!first_difference(compare_all(first, expected)).empty())) return true;
  halving_optimizer(*problem.workload).step(engine, first.gradients);
  Results second = run_step(engine, problem.input, problem.output_grad);
  return !first_difference(compare_all(second, after_halving)).empty();
}

/// Whether an error may follow from a fault: a shape that does not fit, or devices that make different calls.
bool is_of_fault(const Error& error) {
  return error.code() == Code::internal || error.code() == Code::argument || error.code() == Code::mismatch ||
         error.code() == Code::deadlock;
}

bool is_noticed(const Case& c, const ExactProblem& problem, const Solution& expected,
                const Solution& after_halving, const Faults& faults) {
  plant_faults(faults);
  std::unique_ptr<ShardedEngine> engine = c.engine(problem);  // splits its groups from the faulty one
  bool differs = false;
  try {
    try {
      differs = two_steps_differ(*engine, problem, expected, after_halving);
    } catch (const Error& error) {
      if (error.code() == Code::internal || error.code() == Code::argument)
        any_device(true);  // others may wait
      throw;
    }
  } catch (const Error& error) {
    differs = is_of_fault(error);
  }
  plant_faults({});
  return any_device(differs);
}

/// Counts the calls of a step without faults, and each device's messages with content.
void count(const Case& c, const ExactProblem& problem, Index& calls, std::vector<Index>& messages) {
  plant_faults({});
  std::unique_ptr<ShardedEngine> engine = c.engine(problem);
  ledger().reset();
  halving_optimizer(*problem.workload)
      .step(*engine, run_step(*engine, problem.input, problem.output_grad).gradients);
  calls = std::ranges::max(group().exchange("calls", calls_made()));
  messages = group().exchange("messages", messages_sent());
  CHECK(messages_sent() == ledger().traffic().messages);
}

/// Plants each fault in turn: a call left out, or a message corrupted.
void plant_all(const Case& c, const ExactProblem& problem) {
  const Solution expected = solve(problem, group());
  const Solution after_halving = solve(with_halved_weights(problem), group());
  auto noticed = [&](const Faults& faults) {
    return is_noticed(c, problem, expected, after_halving, faults);
  };
  CHECK_FALSE(noticed({}));
  Index calls = 0;
  std::vector<Index> messages;
  count(c, problem, calls, messages);
  const bool rounds = problem.workload->gradient_unit() != 1;
  for (Index k = 0; k < calls; ++k) {
    INFO("call " << k << " of " << calls << " left out");
    CHECK(noticed({k, std::nullopt, 0}));
  }
  for (int device = 0; device < group().num_devices(); ++device)
    for (Index k = 0; k < messages[static_cast<std::size_t>(device)]; ++k) {
      INFO("message " << k << " of device " << device << " corrupted");
      CHECK(noticed({std::nullopt, k, device, rounds}));
    }
}

void plant_in(const Variant& variant, const Options& options) {
  const int devices = group().num_devices();
  // All slices have the same shape, so a shape that does not fit is noticed on every device.
  const std::vector<ExactProblem> problems =
      live_problems_of(*variant.workload, devices, accepted_by(variant, options));
  CAPTURE(variant.name);
  CHECK(!problems.empty());
  for (const ExactProblem& problem : problems) {
    const Case c{variant, options, problem.workload, problem.input.shape[0]};
    CAPTURE(c.describe());
    if (problem.workload->gradient_unit() != 1 && devices > 3) return;  // thousands of faults
    plant_all(c, problem);
  }
}

}  // namespace

TEST_CASE("every call left out and every message corrupted is noticed", "[faults]") {
  if (group().num_devices() == 1) return;  // nothing is sent
  for (const Variant& variant : variants_under_test()) {
    std::vector<Options> all = tested_options(variant, group().num_devices());
    const bool is_one_enough = !variant.mesh || (group().num_devices() > 2 && !with_all());
    if (is_one_enough && !all.empty())
      all = {all.back()};  // empty if the variant does not run on this number of devices
    for (const Options& options : all) plant_in(variant, options);
  }
}

}  // namespace shard::testing
