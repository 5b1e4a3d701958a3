#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/program/report.hpp"
#include "engine/program/step/step.hpp"

namespace shard {

/// A figure of the ledger with its closed form, if it has one. It keeps the first step in which the two
/// differ, or else the step in which the figure is largest.
struct WorstStep {
  Index measured = 0;
  Index formula = 0;
  Index step = 0;
  std::string why = {};  ///< why the two differ

  /// `explain` is called where the two differ.
  void add(Index step_now, Index measured_now, std::optional<Index> formula_now,
           const std::function<std::string()>& explain);
};

/// What one device sends, computes and holds in its steps, compared with the closed forms.
class StepFigures {
 public:
  /// Called after each step, counted from 1. The ledger was reset before the step.
  void add(const Run& run, const ShardedEngine& engine, const Optimizer& optimizer, Index step);
  /// Operations of this device in all steps.
  Index all_flops() const { return all_flops_; }
  /// Writes every device's figures into the report. A collective.
  void gather_into(Report& report, const Run& run) const;
  /// A line, on device 0, for each figure of a device that differs from its closed form: "device 1, step 2:
  /// operations: measured 81,920, formula 262,144". It also says which collective sent the bytes, or at which line
  /// the most bytes were held. A collective.
  std::vector<std::string> misses(const Run& run) const;

 private:
  WorstStep bytes_, messages_, flops_, peak_;
  std::map<std::string, Traffic> along_;  // by axes of a mesh; the step that sends most
  Index all_flops_ = 0;
};

}  // namespace shard
