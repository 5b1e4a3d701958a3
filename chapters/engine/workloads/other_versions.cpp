#include "engine/workloads/other_versions.hpp"

#include <algorithm>
#include <functional>

namespace shard {

namespace {

constexpr std::size_t most_alone = 16;  // parameters that are tried one by one

/// Adds the problem's results with a mistake, if float32 holds them exactly.
void add(std::vector<OtherResults>& all, const Diagnosis& says, const ExactProblem& problem,
         Communicator& group, Cause mistake = Cause::unknown) {
  try {
    all.push_back({says, problem.workload->solve_with(mistake, problem, group)});
  } catch (const Error& error) {
    if (error.code() != Code::internal) throw;
  }
}

/// The rows of a tensor that were not updated.
using OldRows = std::function<std::vector<Range>(Index rows)>;

/// The problem in which rows of these weights have their values of `before`.
ExactProblem with_old(const ExactProblem& before, ExactProblem now, const std::vector<std::string>& names,
                      const OldRows& old_rows) {
  for (const std::string& name : names) {
    HostTensor& w = now.weights.at(name);
    const Index rows = w.shape.at(0), width = num_elements(w.shape) / std::max<Index>(rows, 1);
    for (const Range& old : old_rows(rows))
      std::copy_n(before.weights.at(name).values.begin() + old.begin * width, old.size() * width,
                  w.values.begin() + old.begin * width);
  }
  return now;
}

}  // namespace

std::vector<OtherResults> other_versions(const ExactProblem& problem, Communicator& group) {
  std::vector<OtherResults> all;
  for (const Cause mistake : problem.workload->mistakes())
    add(all, Diagnosis(mistake, {std::to_string(group.num_devices())}), problem, group, mistake);
  return all;
}

std::vector<OtherResults> stale_versions(const ExactProblem& before, const ExactProblem& now, int devices,
                                         int device, Communicator& group) {
  std::vector<OtherResults> all;
  auto add_old = [&](Cause cause, std::vector<std::string> words, const std::vector<std::string>& names,
                     const OldRows& old_rows) {
    add(all, Diagnosis(cause, words), with_old(before, now, names, old_rows), group);
  };
  const OldRows whole = [](Index rows) { return std::vector{Range{0, rows}}; };
  const OldRows of_others = [&](Index rows) {
    const Range mine = part(rows, devices, device);
    return std::vector{Range{0, mine.begin}, Range{mine.end, rows}};
  };
  std::vector<std::string> every;
  for (const auto& [name, w] : now.weights) every.push_back(name);
  add_old(Cause::previous_step, {}, every, whole);
  add_old(Cause::stale_elsewhere, {"all weights"}, every, of_others);
  for (const std::string& name : every) {
    if (every.size() > most_alone) break;
    add_old(Cause::stale, {name}, {name}, whole);
    add_old(Cause::stale_elsewhere, {name}, {name}, of_others);
    for (int d = 0; d < devices; ++d)
      add_old(Cause::stale_on, {name, std::to_string(d)}, {name},
              [&](Index rows) { return std::vector{part(rows, devices, d)}; });
  }
  return all;
}

}  // namespace shard
