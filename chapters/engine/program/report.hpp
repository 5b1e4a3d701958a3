#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/device/books/figures.hpp"
#include "engine/device/device.hpp"
#include "engine/proof/compare.hpp"
#include "engine/proof/loss_curve.hpp"

namespace shard {

/// What was sent along one axis of a mesh, or along several. It has no closed form.
struct AxisFigures {
  std::string axes;  ///< "data", or "all"
  Figure bytes;
  Figure messages;
};

/// The results of a training run.
struct Report {
  std::string chapter;  ///< "03"
  std::string title;
  std::string variant;
  std::string workload;  ///< the kind of workload
  int devices = 1;
  Index layers = 2;
  std::vector<double> losses;      ///< of each step
  Index max_ulp = 0;               ///< largest difference to the unsharded network in exact mode
  Figure bytes;                    ///< sent, in the step that sends most
  Figure messages;                 ///< sent, in the step that sends most
  std::vector<AxisFigures> along;  ///< the same by axes, on a mesh
  Figure flops;                    ///< of matrix products, in the step that has most
  Figure peak;                     ///< the most bytes held
  double milliseconds = 0;         ///< of a step, median
  /// The most operations a second that all devices can do for products; 0 where it is not known.
  double peak_rate = 0;
  std::string products;  ///< the library that made them, and its kernels
  /// For each step, the choices that rounding may change (Journal::decisions).
  std::vector<std::vector<Index>> decisions;
  /// The comparison with the unsharded network's losses; nothing without such a network.
  std::optional<CurveComparison> curve;

  bool is_good() const {
    return max_ulp == 0 && (!curve || curve->is_good()) && bytes.is_met() && messages.is_met() &&
           flops.is_met() && peak.is_met();
  }
};

/// Writes the whole file or none: see Replacement. \throws Error file when it cannot be written
void write_report(const std::string& path, const Report& report);
/// Of a chapter that shows collectives.
void write_report(const std::string& path, const std::string& chapter, const std::string& title,
                  const std::vector<Outcome>& outcomes, int devices);
/// \throws Error file when the file cannot be read, or is no report
Report read_report(const std::string& path);

/// The results as a table with a row, and one for each axis. Marks: "=" if the figure equals its closed form on every
/// device, "not 8,192" if it does not, "booked" if the backend computed it, "–" without a form. Where `width` columns
/// are too few, columns are left out. chapters/tour.py has the table of several.
std::string table(const Report& report, int width, bool with_times);
/// What is wrong with a run that is not good: "bytes sent on device 2: expected 4,096, given 8,192; ...".
std::string wrong_figures(const Report& report);
/// Sentences that explain the marks of this table, and the source of its figures.
std::string table_notes(const std::vector<Report>& reports);
/// Prints the table of a tour from its reports, and whether the loss curves of all chapters agree.
int summarize(const std::vector<std::string>& report_files);

}  // namespace shard
