#pragma once

#include "engine/program/training/train.hpp"

namespace shard {

/// The records that a checkpoint needs so that the run can resume after this step.
Records records_of(const Run& run, const std::string& precision, Index step);
/// Reads the manifest of the checkpoint that `--resume` names, if any, and sets each option that was not
/// given to its recorded value. Seed, optimizer and network must be the checkpoint's; other options may
/// differ. \throws Error file; usage
void take_recorded_options(const CommandLine& line, TrainCommand& command);

}  // namespace shard
