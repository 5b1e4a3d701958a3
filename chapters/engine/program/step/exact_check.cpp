#include "engine/program/step/exact_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/device/communicator/checked_communicator.hpp"
#include "engine/device/gathered.hpp"
#include "engine/engines/optimizer.hpp"
#include "engine/program/step/rows_of_step.hpp"
#include "engine/weights/checkpoint.hpp"
#include "engine/workloads/other_versions.hpp"

namespace shard {

namespace {

constexpr std::size_t most_shown = 2;  // devices whose differences are printed

/// Matrix products use float32 during the lifetime of this object.
class InFloat32 {
 public:
  InFloat32() { set_precision(Precision::float32); }
  ~InFloat32() { set_precision(before_); }
  InFloat32(const InFloat32&) = delete;
  InFloat32& operator=(const InFloat32&) = delete;

 private:
  Precision before_ = precision();
};

Tensor rows_of(const HostTensor& t, Range rows) {
  return slice(Tensor::from_host(t.shape, t.values), 0, rows.begin, rows.end);
}

/// Makes engines to be compared with exact problems.
struct Checked {
  const Run& run;
  Communicator& group;  ///< of the engine; it may check claims of layout

  int devices() const { return run.group.num_devices(); }
  std::unique_ptr<ShardedEngine> engine(const ExactProblem& problem, bool input_grad) const {
    std::unique_ptr<ShardedEngine> made = run.variant.make(group, *problem.workload, run.options);
    made->load_checkpoint(*host_checkpoint(problem.weights, "exact mode"));
    made->want_input_grad(input_grad);
    return made;
  }
};

/// The results of one step on this device.
struct Step {
  std::vector<OutputRows> output;
  Gradients gradients;
  bool moves = false;  ///< RowsOfStep
  /// A difference, if tokens have other slots than by the definitions; none where these know no slots.
  std::optional<std::vector<Comparison>> choices;
};

/// Values may hide such a difference: a choice whose gate is 0 adds nothing, and is sent all the same.
std::optional<std::vector<Comparison>> other_choices(const ShardedEngine& engine,
                                                     const ExactProblem& problem) {
  const Workload& network = *problem.workload;
  if (!network.step_data(problem, 1)) return std::nullopt;
  const auto given = network.step_data(engine);
  const std::string text = given->difference_from(*network.step_data(problem, given->devices()));
  std::vector<Comparison> differences;
  if (!text.empty()) differences.push_back({.max_ulp = 1, .first_difference = text});
  return differences;
}

Step step(ShardedEngine& engine, const ExactProblem& problem) {
  Step done;
  const Index before = moved_so_far();
  Tensor input = rows_of(problem.input, engine.input_rows(problem.input.shape[0]));
  note_parameters(engine);
  done.gradients = gradients_of_batch(engine, std::move(input), [&](const Tensor& output, Index first_row) {
    done.output.push_back({first_row, {output.shape(), output.to_host()}});
    return rows_of(problem.output_grad, {first_row, first_row + output.extent(0)});
  });
  done.moves = moved_so_far() > before;
  done.choices = other_choices(engine, problem);
  return done;
}

/// The number of differences on all devices that have each cause.
std::map<Cause, Index> counts_of_causes(Communicator& group, const std::vector<Comparison>& comparisons) {
  std::vector<int> mine;
  for (const Comparison& c : comparisons)
    if (!c.is_equal()) mine.push_back(static_cast<int>(c.cause));
  std::map<Cause, Index> counts;
  for (const std::vector<int>& of_device : gather_for_all(group, "causes", mine))
    for (const int cause : of_device) ++counts[static_cast<Cause>(cause)];
  counts[Cause::unknown] = 0;
  return counts;
}

/// The difference to print: the first one with the cause that explains most differences on all devices. A mistake
/// makes many results wrong; a cause of few of them may fit by chance.
std::string difference_to_show(Communicator& group, const std::vector<Comparison>& comparisons) {
  const std::map<Cause, Index> counts = counts_of_causes(group, comparisons);
  const Comparison* likeliest = nullptr;
  for (const Comparison& c : comparisons)
    if (!c.is_equal() && (likeliest == nullptr || counts.at(c.cause) > counts.at(likeliest->cause)))
      likeliest = &c;
  return likeliest == nullptr ? "" : likeliest->first_difference;
}

/// The largest difference over all devices, in ulp. Device 0 prints a difference of at most two devices.
Index worst_of_all(Communicator& group, const std::vector<Comparison>& comparisons, const char* when) {
  Index worst = 0;
  for (const Comparison& c : comparisons) worst = std::max(worst, c.max_ulp);
  std::vector<std::string> lines = group.gather("exact mode", difference_to_show(group, comparisons));
  std::erase(lines, "");
  std::stable_partition(lines.begin(), lines.end(),
                        [](const std::string& l) { return !l.ends_with(Diagnosis().text); });
  for (const std::string& line : lines) note_difference(line + when);
  for (std::size_t i = 0; i < lines.size() && i < most_shown; ++i)
    fmt::print("  differs{}: {}\n", when, lines[i]);
  if (lines.size() > most_shown) fmt::print("  and on other devices: {} devices in all\n", lines.size());
  if (lines.size() == 1 && group.num_devices() > 1) fmt::print("  the other devices' results are right\n");
  return std::ranges::max(group.exchange("exact mode", worst));
}

Index worst_of_choices(Communicator& group, const Step& done, const char* when) {
  return done.choices ? worst_of_all(group, *done.choices, when) : 0;
}

/// A difference, on device 0, for each parameter with elements that no device updates. It shows even if no
/// row of the batch uses them.
std::vector<Comparison> untrained(ShardedEngine& engine, const ExactProblem& problem) {
  std::map<std::string, Index> mine, trained;
  for (const Trainable& t : engine.trainable()) mine[t.name] += num_elements(t.parameter.shape());
  for (const auto& theirs : gather(engine.group(), "parameters that are trained", mine))
    for (const auto& [name, elements] : theirs) trained[name] += elements;
  std::vector<Comparison> missing;
  for (const auto& [name, weights] : problem.weights)
    if (const Index all = num_elements(weights.shape); this_device() == 0 && trained[name] < all) {
      const Diagnosis says(Cause::not_trained, {std::to_string(all), std::to_string(trained[name])});
      missing.push_back({.max_ulp = all, .first_difference = name + ": " + says.text, .cause = says.cause});
    }
  return missing;
}

/// The largest difference, in ulp, of the first wrong step of three: with dL/dx, without it, and after the
/// optimizer has halved the weights.
Index difference_on(const Checked& checked, const ExactProblem& problem) {
  const int devices = checked.devices();
  Communicator& group = checked.run.group;  // does not verify claims of the unsharded engine
  Solution expected = solve(problem, group);
  bool was_right_with_input_grad = false;
  auto differs = [&](const Step& done, const char* when) -> Index {
    if (const Index worst = worst_of_choices(checked.group, done, when); worst > 0) return worst;
    const std::vector<Comparison> plain = compare_all(group, done.output, done.gradients, expected);
    const bool all_equal = std::ranges::all_of(plain, &Comparison::is_equal);
    if (std::ranges::max(group.exchange("exact mode", all_equal ? 0 : 1)) == 0) return 0;
    RowsOfStep rows(group, problem, done.output, done.gradients, expected, done.moves);
    Background background = background_of(problem, rows, group);
    background.was_right_with_input_grad = was_right_with_input_grad;
    return worst_of_all(checked.group, compare_all(group, done.output, done.gradients, expected, background),
                        when);
  };
  if (const Index worst = differs(step(*checked.engine(problem, true), problem), ""); worst > 0) return worst;

  expected.erase(Gradients::input_grad);
  was_right_with_input_grad = true;
  const std::unique_ptr<ShardedEngine> engine = checked.engine(problem, false);
  const Step first = step(*engine, problem);
  if (const Index worst = differs(first, " where dL/dx is not wanted"); worst > 0) return worst;

  if (const Index worst = worst_of_all(checked.group, untrained(*engine, problem), ""); worst > 0)
    return worst;
  const Workload& network = *problem.workload;
  HalvingOptimizer([&](const std::string& name) {
    return network.must_stay(name);
  }).step(*engine, first.gradients);
  const ExactProblem halved = with_halved_weights(problem);
  expected = solve(halved, group);
  expected.erase(Gradients::input_grad);
  const Background stale{
      .others = [&] { return stale_versions(problem, halved, devices, group.device_id(), group); }};
  const Step second = step(*engine, halved);
  return worst_of_all(checked.group, compare_all(group, second.output, second.gradients, expected, stale),
                      " after a step of the optimizer");
}

}  // namespace

/// The first attempt throws at a false claim that all devices hold the same tensor. The second attempt does not
/// check claims, and shows the differences that follow from the false one.
Index exact_difference(const Run& run) {
  const InFloat32 exact;
  constexpr Index rows = 13;  // few enough to stay exact, and prime, so that no cut is even
  const ExactProblem problem = run.network.exact_problem(rows, run.training.seed);
  try {
    CheckedCommunicator checking(run.group);
    return difference_on({run, checking}, problem);
  } catch (const FalseClaim& error) {
    if (error.members() < run.group.num_devices()) throw;  // the other devices are still in the first attempt
    Index worst = 0;
    try {
      worst = difference_on({run, run.group}, problem);
    } catch (const Error&) {
      throw error;  // the second error follows from the false claim
    }
    if (worst == 0) throw;
    if (run.group.device_id() == 0) {
      fmt::print("  a claim of layout is false: {}\n", error.what());
      note_difference(error.what());
    }
    return worst;
  }
}

}  // namespace shard
