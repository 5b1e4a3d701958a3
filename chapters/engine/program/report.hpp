#pragma once

#include <string>
#include <vector>

#include "engine/program/chapter.hpp"

namespace shard {

/// A figure as the ledger measured it and as its closed form says, of every device.
struct Figure {
  std::vector<Index> measured;
  std::vector<Index> formula;

  bool is_met() const { return measured == formula; }
  Index largest() const;
};

/// What a training run showed.
struct Report {
  std::string chapter;
  std::string title;
  std::string variant;
  int devices = 1;
  Index layers = 2;
  std::vector<double> losses;  ///< of each step
  Index max_ulp = 0;           ///< largest difference to the unsharded network in exact mode
  Figure bytes;                ///< sent, in the step that sends most
  Figure messages;             ///< sent, in the step that sends most
  Figure flops;                ///< of matrix products, in the step that has most
  Figure peak;                 ///< bytes held at most
  double milliseconds = 0;     ///< of a step, median
  std::string reference;       ///< variant here whose losses these must follow; empty: the first report's
  std::vector<std::vector<Index>> choices;  ///< of a mixture, in each step, for each expert

  bool is_good() const {
    return max_ulp == 0 && bytes.is_met() && messages.is_met() && flops.is_met() && peak.is_met();
  }
};

/// What one scene of chapter 00 showed.
struct Outcome {
  std::string name;
  Figure messages;       ///< sent
  Figure bytes;          ///< sent
  bool is_right = true;  ///< values and figures
};

/// Gathers each device's measured and derived number on device 0.
Figure gather_figure(Communicator& group, const char* what, Index measured, Index formula);

/// For the beginning of a long run. \throws Error file when a report cannot be written at this path: no such
/// folder
void require_place_for_report(const std::string& path);
/// Writes the whole file or none. \throws Error file when it cannot be written
void write_report(const std::string& path, const Report& report);
void write_report(const std::string& path, int devices, const std::vector<Outcome>& outcomes);
/// \throws Error file when it cannot be read, or is none
Report read_report(const std::string& path);

/// The table that a tour ends in: a row a report, each figure marked where it misses its form.
std::string table(const std::vector<Report>& reports);

}  // namespace shard
