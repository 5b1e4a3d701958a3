/// Training is saved, loaded and continued, in each format. A part of the suite of equivalence_test.cpp.

#include "tests/equivalence/each_case.hpp"
#include "tests/equivalence/saved.hpp"

RUNS_ON(.in_one_process = {1, 2, 3, 4}, .with_all = {5, 6, 8, 12, 16}, .processes = {3},
        .on_cuda = {1, 2, 3, 4, 8});

namespace shard::testing {

namespace {

constexpr std::size_t saved_after = plain_steps + 1;  // one step with momentum

/// Makes one step with momentum, and saves. Another engine with another optimizer loads this, and continues.
void save_and_go_on(const Case& c, const std::string& format) {
  const std::vector<SolvedStep>& steps = solved_steps(c);
  const CommonFolder folder(group());
  {
    std::unique_ptr<ShardedEngine> engine = c.engine(steps[plain_steps].problem, false);
    IntegerMomentum optimizer = integer_optimizer<IntegerMomentum>(steps[0].problem);
    const Results results = run_step(*engine, steps[0].problem.input, steps[0].problem.output_grad);
    optimizer.step(*engine, results.gradients);
    save_for_test(*engine, optimizer, *c.network, folder / "saved", format, 1);
  }
  CHECK(difference_of_saved(folder / "saved", format, steps[saved_after].problem.weights,
                            steps[saved_after].momenta) == "");
  const Manifest manifest = read_manifest(folder / "saved");
  verify_digests(group(), folder / "saved", manifest);
  std::unique_ptr<ShardedEngine> engine = c.engine(steps[0].problem, false);
  IntegerMomentum optimizer = integer_optimizer<IntegerMomentum>(steps[0].problem);
  load_training(*engine, optimizer, folder / "saved", manifest);
  CHECK(optimizer.steps() == 1);
  for (std::size_t step = saved_after; step < steps.size(); ++step) {
    const Results results = run_step(*engine, steps[step].problem.input, steps[step].problem.output_grad);
    check_equal(compare_all(results, steps[step].solution));
    optimizer.step(*engine, results.gradients);
  }
  group().barrier();
}

}  // namespace

TEST_CASE(
    "saved after a step, in each format in turn, it is the unsharded network, and two more steps are its own",
    "[suite]") {
  std::size_t turn = 0;
  for_each_case([&](const Case& c) {
    if (!stays_exact(*c.network)) return;
    const std::string& format = formats[turn++ % formats.size()];
    CAPTURE(format);
    save_and_go_on(c, format);
  });
}

}  // namespace shard::testing
