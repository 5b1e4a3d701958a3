/// summary REPORT...: the table a tour ends in, and whether all chapters learned the same.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/device/runtime/control_plane.hpp"
#include "engine/program/report.hpp"

namespace {

using namespace shard;

/// The report whose losses those of `r` must follow: the first one as deep, or of the variant that `r` names.
const Report& reference_of(const Report& r, const std::vector<Report>& reports) {
  if (r.reference.empty()) return *std::ranges::find(reports, r.layers, &Report::layers);
  for (const Report& other : reports)
    if (other.chapter == r.chapter && other.variant == r.reference) return other;
  throw Error(Code::usage, fmt::format("summary: expected beside the report of {} {} one of {}, given none",
                                       r.chapter, r.variant, r.reference));
}

/// The first step at which a mixture's choices differ from its reference's, or the number of steps. A choice
/// is no continuous function of the weights: where two experts are as likely as each other but for rounding,
/// either may be chosen, and from there on the two networks are different ones.
std::size_t comparable_steps(const Report& r, const Report& reference) {
  std::size_t steps = std::min(r.losses.size(), reference.losses.size());
  for (std::size_t step = 0; step < std::min({steps, r.choices.size(), reference.choices.size()}); ++step)
    if (r.choices[step] != reference.choices[step]) return step;
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
          "{} {}: from step {} on, rounding chose other experts than in {}: losses are compared up to it\n",
          r.chapter, r.variant, steps + 1, reference.variant);
  }
  return largest;
}

int summarize(const std::vector<std::string>& paths) {
  constexpr double curves_agree = 1e-4;  // relative; float32 sums in another order, over hundreds of steps
  if (paths.empty()) throw Error(Code::usage, "summary: expected report files, given none");
  std::vector<Report> reports;
  for (const std::string& path : paths) reports.push_back(read_report(path));
  double difference = largest_difference(reports);
  fmt::print("{}\n", table(reports));
  fmt::print(
      "On {} devices. Bytes and messages: sent a step by the device that sends most; bytes held: at most, "
      "by\n"
      "the one that holds most; \"=\": every device's figure is its closed form's. ulp: largest difference "
      "of any\n"
      "gradient to the unsharded network in exact mode. Loss curves agree with the unsharded network's to a\n"
      "relative {:.1e}.\n",
      reports.front().devices, difference);
  bool good = difference <= curves_agree && std::ranges::all_of(reports, &Report::is_good);
  if (!good) fmt::print("\nA figure above is not what it should be.\n");
  return good ? 0 : static_cast<int>(Code::differs);
}

}  // namespace

int main(int argc, char** argv) {
  return shard::run_on_devices(argc, argv, [&](shard::Communicator&) {
    return summarize({argv + 1, argv + argc});
  });
}
