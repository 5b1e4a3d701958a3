#include "engine/workloads/other_versions.hpp"

#include <algorithm>

namespace shard {

namespace {

constexpr Index most_pieces = 4;        // of a micro-batched step
constexpr std::size_t most_alone = 16;  // parameters of which each is tried alone

/// Adds the problem's results, those with a mistake, if float32 holds them exactly.
void add(std::vector<OtherResults>& all, const Diagnosis& says, const ExactProblem& problem,
         Cause mistake = Cause::unknown) {
  try {
    all.push_back({says, problem.workload->solve_with(mistake, problem)});
  } catch (const Error& error) {
    if (error.code() != Code::internal) throw;
  }
}

/// Micro-batch `k` of so many, of each device's rows.
ExactProblem one_piece(const ExactProblem& problem, int devices, Index pieces, Index k) {
  const Index rows = problem.output_grad.shape.at(0);
  std::vector<Range> counted;
  for (int d = 0; d < devices; ++d) {
    const Range mine = part(rows, devices, d),
                piece = part(mine.size(), static_cast<int>(pieces), static_cast<int>(k));
    counted.push_back({mine.begin + piece.begin, mine.begin + piece.end});
  }
  return of_rows(problem, counted);
}

/// All weights of `now`, but these of `before`: whole, or all rows but `mine`.
ExactProblem with_old(const ExactProblem& before, ExactProblem now, const std::vector<std::string>& names,
                      int devices, int device, bool is_whole) {
  for (const std::string& name : names) {
    HostTensor& w = now.weights.at(name);
    const Range mine = is_whole ? Range{0, 0} : part(w.shape.at(0), devices, device);
    const Index width = num_elements(w.shape) / std::max<Index>(w.shape.at(0), 1);
    const std::vector<float>& old = before.weights.at(name).values;
    std::copy(old.begin(), old.begin() + mine.begin * width, w.values.begin());
    std::copy(old.begin() + mine.end * width, old.end(), w.values.begin() + mine.end * width);
  }
  return now;
}

}  // namespace

std::vector<OtherResults> other_versions(const ExactProblem& problem, int devices) {
  std::vector<OtherResults> all;
  for (const Cause mistake : problem.workload->mistakes()) add(all, Diagnosis(mistake), problem, mistake);
  for (Index pieces = 2; pieces <= most_pieces; ++pieces)
    for (const auto& [k, which] : {std::pair{pieces - 1, "last"}, {Index{0}, "first"}})
      add(all, Diagnosis(Cause::one_piece, {which}), one_piece(problem, devices, pieces, k));
  return all;
}

std::vector<OtherResults> stale_versions(const ExactProblem& before, const ExactProblem& now, int devices,
                                         int device) {
  std::vector<OtherResults> all;
  std::vector<std::string> every;
  for (const auto& [name, w] : now.weights) every.push_back(name);
  add(all, Diagnosis(Cause::previous_step), before);
  add(all, Diagnosis(Cause::stale_elsewhere, {"all weights"}),
      with_old(before, now, every, devices, device, false));
  for (const std::string& name : every) {
    if (every.size() > most_alone) break;
    add(all, Diagnosis(Cause::stale, {name}), with_old(before, now, {name}, devices, device, true));
    add(all, Diagnosis(Cause::stale_elsewhere, {name}),
        with_old(before, now, {name}, devices, device, false));
  }
  return all;
}

}  // namespace shard
