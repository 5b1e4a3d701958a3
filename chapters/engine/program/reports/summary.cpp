#include <fmt/format.h>

#include <algorithm>

#include "engine/program/commands.hpp"
#include "engine/program/reports/report.hpp"

namespace shard {

namespace {

/// How well the first losses agree with the unsharded network's. Each report has its own comparison.
std::string curve_notes(const std::vector<Report>& reports) {
  double largest = 0;
  for (const Report& r : reports)
    if (r.curve) largest = std::max(largest, r.curve->largest);
  return fmt::format("The losses of the first ten steps are the unsharded network's to a relative {:.1e}.\n",
                     largest);
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
