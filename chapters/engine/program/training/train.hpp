#pragma once

#include <string>

#include "engine/checkpoints/save.hpp"
#include "engine/program/command.hpp"
#include "engine/program/step/step.hpp"

namespace shard {

/// Trains, checks the exact mode and the closed forms, and prints the chapter's row. Returns 0, or 86 when a
/// gradient or a figure differs.
struct TrainCommand : Command {
  TrainCommand() { record_steps = 1; }
  void add_options(const CommandLine& line) override;
  void complete(const CommandLine& line) override;
  void describe(Entry& job, const Chapter& chapter) const override;
  int run(Communicator& group, const Chapter& chapter) const override;

  Training training;
  std::string report;
  bool times = false;  ///< the table has the time of a step
  std::string save;    ///< the folder
  Index save_every = 0;
  SaveForm form;
  bool unverified = false;  ///< digests are not compared
};

}  // namespace shard
