#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/proof/compare.hpp"
#include "engine/proof/loss_curve.hpp"

namespace shard {

/// A figure of every device: the ledger's number and the closed form's.
struct Figure {
  std::vector<Index> measured;
  std::vector<Index> formula = {};  ///< empty: there is no form
  bool is_booked = false;           ///< the ledger's number is no measurement, but the backend's own form

  bool has_form() const { return !formula.empty(); }
  /// Whether the ledger's number is the closed form's on every device.
  bool is_met() const { return !has_form() || measured == formula; }
  Index largest() const;
};

/// What was sent along an axis of a mesh, or along several. No form says it.
struct AxisFigures {
  std::string axes;  ///< "data", or "all"
  Figure bytes;
  Figure messages;
};

/// What a training run showed.
struct Report {
  std::string chapter;  ///< "03"
  std::string title;
  std::string variant;
  std::string workload;  ///< its kind
  int devices = 1;
  Index layers = 2;
  std::vector<double> losses;      ///< of each step
  Index max_ulp = 0;               ///< largest difference to the unsharded network in exact mode
  Figure bytes;                    ///< sent, in the step that sends most
  Figure messages;                 ///< sent, in the step that sends most
  std::vector<AxisFigures> along;  ///< the same by axes, on a mesh
  Figure flops;                    ///< of matrix products, in the step that has most
  Figure peak;                     ///< bytes held at most
  double milliseconds = 0;         ///< of a step, median
  /// Of each step, what rounding may turn (Journal::decisions).
  std::vector<std::vector<Index>> decisions;
  /// With the unsharded network's losses, of the same run; nothing where there is none.
  std::optional<CurveComparison> curve;

  bool is_good() const {
    return max_ulp == 0 && (!curve || curve->is_good()) && bytes.is_met() && messages.is_met() &&
           flops.is_met() && peak.is_met();
  }
};

/// What one scene of chapter 00 showed.
struct Outcome {
  std::string name;
  Figure messages;       ///< sent
  Figure bytes;          ///< sent
  bool is_right = true;  ///< values and figures
};

/// Gathers each device's measured and derived number. A collective.
Figure gather_figure(Communicator& group, const char* what, Index measured, Index formula);
/// The same for a number without a closed form.
Figure gather_figure(Communicator& group, const char* what, Index measured);

/// Writes the whole file or none: see Replacement. \throws Error file when it cannot be written
void write_report(const std::string& path, const Report& report);
void write_report(const std::string& path, const std::vector<Outcome>& outcomes, int devices);
/// \throws Error file when it cannot be read, or is none
Report read_report(const std::string& path);

/// The table that a tour ends in: a row a report. Figures are marked: "=" where every device's is its form's,
/// "not 8,192" where one is not, "booked" where the backend books it, "–" where there is no form. A report
/// that stands alone has a row for each axis, too.
std::string table(const std::vector<Report>& reports);
/// What the marks of this table mean, and whose figures it shows: plain sentences.
std::string table_notes(const std::vector<Report>& reports);

}  // namespace shard
