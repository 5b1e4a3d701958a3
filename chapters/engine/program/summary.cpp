#include <fmt/format.h>

#include <algorithm>

#include "engine/program/commands.hpp"
#include "engine/program/report.hpp"

namespace shard {

namespace {

/// How well the loss curves agree with the unsharded network's. Each run has compared its own
/// (loss_curve.hpp): up to the step from which on rounding alone may change the loss by 1 %.
std::string curve_notes(const std::vector<Report>& reports) {
  double largest = 0;
  bool all_steps = true;
  for (const Report& r : reports) {
    if (!r.curve) continue;
    largest = std::max(largest, r.curve->largest);
    all_steps &= r.curve->steps == static_cast<Index>(r.losses.size());
  }
  return fmt::format(
      "Loss curves agree with the unsharded network's to a relative {:.1e}{}.\n", largest,
      all_steps
          ? ""
          : ", up to the steps\nfrom which on rounding may change a loss by 1 % (--verbose names them)");
}

}  // namespace

int summarize(const std::vector<std::string>& paths) {
  if (paths.empty()) throw Error(Code::usage, "summary: expected report files, given none");
  std::vector<Report> reports;
  for (const std::string& path : paths) reports.push_back(read_report(path));
  fmt::print("On {} devices. {}{}", reports.front().devices, table_notes(reports), curve_notes(reports));
  bool is_good = true;
  for (const Report& r : reports)
    if (!r.is_good()) {
      fmt::print("not as it should be: {} {}\n", r.chapter, r.variant);
      is_good = false;
    }
  return is_good ? 0 : static_cast<int>(Code::differs);
}

}  // namespace shard
