#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/program/commands.hpp"
#include "engine/program/report.hpp"

namespace shard {

namespace {

/// The report whose losses those of `r` must follow: the first one of its workload that is as deep, or that
/// of the variant that `r` names. Its own where that one has trained another workload: then only the run itself
/// has compared them.
const Report& reference_of(const Report& r, const std::vector<Report>& reports) {
  if (r.reference.empty())
    return *std::ranges::find_if(reports, [&](const Report& other) {
      return other.workload == r.workload && other.layers == r.layers;
    });
  for (const Report& other : reports)
    if (other.chapter == r.chapter && other.title == r.title && other.variant == r.reference)
      return other.workload == r.workload ? other : r;
  throw Error(Code::usage, fmt::format("summary: expected beside the report of {} {} one of {}, given none",
                                       r.chapter, r.variant, r.reference));
}

/// The first step whose decisions differ from the reference's, or the number of steps. A mixture's choice is
/// not a continuous function of the weights. If two experts are equally likely up to rounding, either may be
/// chosen. From that step on, the two runs train different networks.
std::size_t comparable_steps(const Report& r, const Report& reference) {
  std::size_t steps = std::min(r.losses.size(), reference.losses.size());
  for (std::size_t step = 0; step < std::min({steps, r.decisions.size(), reference.decisions.size()}); ++step)
    if (r.decisions[step] != reference.decisions[step]) return step;
  return steps;
}

/// Largest relative difference between any loss at a step and its reference's; says where it could not
/// compare.
double largest_difference(const std::vector<Report>& reports) {
  double largest = 0;
  for (const Report& r : reports) {
    const Report& reference = reference_of(r, reports);
    const std::size_t steps = comparable_steps(r, reference);
    for (std::size_t step = 0; step < steps; ++step)
      largest = std::max(largest, std::abs(r.losses[step] - reference.losses[step]) / reference.losses[step]);
    if (steps < r.losses.size())
      fmt::print(
          "{} {}: from step {} on, rounding decided otherwise than in {}: losses are compared up to it\n",
          r.chapter, r.variant, steps + 1, reference.variant);
  }
  return largest;
}

}  // namespace

int summarize(const std::vector<std::string>& paths) {
  constexpr double curves_agree = 1e-4;  // relative; float32 sums in another order, over hundreds of steps
  if (paths.empty()) throw Error(Code::usage, "summary: expected report files, given none");
  std::vector<Report> reports;
  for (const std::string& path : paths) reports.push_back(read_report(path));
  double difference = largest_difference(reports);
  fmt::print("{}\nOn {} devices. {}", table(reports), reports.front().devices, table_notes(reports));
  fmt::print("Loss curves agree with the unsharded network's to a relative {:.1e}.\n", difference);
  bool good = difference <= curves_agree && std::ranges::all_of(reports, &Report::is_good);
  if (!good) fmt::print("\nA figure above is not what it should be.\n");
  return good ? 0 : static_cast<int>(Code::differs);
}

}  // namespace shard
