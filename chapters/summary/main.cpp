/// summary REPORT...: the table a tour ends in, and whether all chapters learned the same.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/control_plane.hpp"
#include "engine/report.hpp"

namespace {

using namespace shard;

/// The report whose losses those of `r` must follow: the first chapter's, or of the variant that `r` names.
const Report& reference_of(const Report& r, const std::vector<Report>& reports) {
  if (r.reference.empty()) return reports.front();
  for (const Report& other : reports)
    if (other.chapter == r.chapter && other.variant == r.reference) return other;
  throw Error(Code::usage, fmt::format("summary: expected beside the report of {} {} one of {}, given none",
                                       r.chapter, r.variant, r.reference));
}

/// Largest relative difference between any loss at a step and its reference's.
double largest_difference(const std::vector<Report>& reports) {
  double largest = 0;
  for (const Report& r : reports) {
    const std::vector<double>& reference = reference_of(r, reports).losses;
    for (std::size_t step = 0; step < std::min(r.losses.size(), reference.size()); ++step)
      largest = std::max(largest, std::abs(r.losses[step] - reference[step]) / reference[step]);
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
  return shard::run_on_devices(argc, argv, [&] { return summarize({argv + 1, argv + argc}); });
}
