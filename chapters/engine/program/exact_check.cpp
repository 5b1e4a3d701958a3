#include "engine/program/exact_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "engine/device/checked_communicator.hpp"
#include "engine/host_checkpoint.hpp"
#include "engine/proof/compare.hpp"

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

/// On device 0: each element of each parameter is updated by some device.
std::vector<Comparison> compare_trained(ShardedEngine& engine, const ExactProblem& problem) {
  std::string mine;
  for (const Trainable& t : engine.trainable())
    mine += fmt::format("{} {}\n", t.name, num_elements(t.parameter.shape()));
  std::map<std::string, Index> trained;
  for (const std::string& text : engine.group().gather("parameters that are trained", mine)) {
    std::istringstream lines(text);
    Index elements = 0;
    for (std::string name; lines >> name >> elements;) trained[name] += elements;
  }
  std::vector<Comparison> missing;
  for (const auto& [name, weights] : problem.weights)
    if (const Index all = num_elements(weights.shape); this_device() == 0 && trained[name] < all)
      missing.push_back(
          {.max_ulp = all,
           .first_difference = fmt::format("{}: expected {} elements that the optimizer updates on some "
                                           "device, given {}",
                                           name, all, trained[name]),
           .cause = Cause::left_out});
  return missing;
}

/// One step of this device, with or without dL/dx, held against the problem's solution.
std::vector<Comparison> compare_step(const Run& run, Communicator& group, const ExactProblem& problem,
                                     const Solution& expected, bool input_grad) {
  std::unique_ptr<ShardedEngine> engine = run.variant.make(group, *problem.workload, run.arguments.options);
  engine->load_checkpoint(*host_checkpoint(problem.weights, "exact mode"));
  engine->want_input_grad(input_grad);
  std::vector<Comparison> comparisons;
  auto loss_gradient = [&](const Tensor& output, Index first_row) {
    const Range seen = {first_row, first_row + output.extent(0)};
    const Tensor want = rows_of(expected.at("output"), seen);
    comparisons.push_back(compare("output", {output.shape(), output.to_host()},
                                  {want.shape(), want.to_host()}, run.group.num_devices(), 0, first_row));
    return rows_of(problem.output_grad, seen);
  };
  Tensor input = rows_of(problem.input, engine->input_rows(problem.input.shape[0]));
  Background background{.addends = [&] { return addends_by_rows(problem, run.group.num_devices()); }};
  background.was_right_with_input_grad = !input_grad;  // else that step has ended the check
  const Gradients gradients = engine->forward_backward(std::move(input), loss_gradient);
  Solution wanted = expected;
  wanted.erase("output");
  if (!input_grad) wanted.erase(Gradients::input_grad);
  std::ranges::move(compare_all(gradients, wanted, background), std::back_inserter(comparisons));
  std::ranges::move(compare_trained(*engine, problem), std::back_inserter(comparisons));
  return comparisons;
}

/// The difference to show: the first one with a known cause, or else the first one.
std::string difference_to_show(const std::vector<Comparison>& comparisons) {
  for (bool any : {false, true})
    for (const Comparison& c : comparisons)
      if (!c.is_equal() && (any || c.cause != Cause::unknown)) return c.first_difference;
  return "";
}

/// The largest difference over all devices; device 0 prints one of each, for two devices at most.
Index worst_of_all(Communicator& group, const std::vector<Comparison>& comparisons, const char* when) {
  Index worst = 0;
  for (const Comparison& c : comparisons) worst = std::max(worst, c.max_ulp);
  std::vector<std::string> lines = group.gather("exact mode", difference_to_show(comparisons));
  std::erase(lines, "");
  for (const std::string& line : lines) note_difference(line + when);
  for (std::size_t i = 0; i < lines.size() && i < most_shown; ++i)
    fmt::print("  differs{}: {}\n", when, lines[i]);
  if (lines.size() > most_shown) fmt::print("  and on others: {} in all\n", lines.size());
  if (lines.size() == 1 && group.num_devices() > 1) fmt::print("  the other devices' results are right\n");
  return std::ranges::max(group.exchange("exact mode", worst));
}

/// The largest difference in a step with dL/dx; if there is none, in one without.
Index difference_on(Communicator& group, const Run& run, const ExactProblem& problem,
                    const Solution& expected) {
  const Index with = worst_of_all(group, compare_step(run, group, problem, expected, true), "");
  if (with > 0) return with;
  return worst_of_all(group, compare_step(run, group, problem, expected, false),
                      " where dL/dx is not wanted");
}

}  // namespace

/// A false claim that all devices hold the same ends the first attempt. The second one, which believes claims,
/// shows what differs because of it.
Index exact_difference(const Run& run) {
  const InFloat32 exact;
  constexpr Index rows = 13;  // few enough to stay exact, and odd, so that no cut is even
  const ExactProblem problem = run.network.exact_problem(rows, run.arguments.seed);
  const Solution expected = solve(problem);
  try {
    CheckedCommunicator checking(run.group);
    return difference_on(checking, run, problem, expected);
  } catch (const FalseClaim& error) {
    if (error.members() < run.group.num_devices()) throw;  // the other devices are still in the first attempt
    const Index worst = difference_on(run.group, run, problem, expected);
    if (worst == 0) throw;
    if (run.group.device_id() == 0) {
      fmt::print("  a claim of layout is false: {}\n", error.what());
      note_difference(error.what());
    }
    return worst;
  }
}

}  // namespace shard
