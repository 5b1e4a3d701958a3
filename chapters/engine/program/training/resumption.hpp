#pragma once

/// How training resumes from a checkpoint: with its options, unless others are given.

#include <CLI/CLI.hpp>

#include "engine/program/training/step.hpp"

namespace shard {

/// The record that a checkpoint needs so that the run can resume after this step.
TrainingRecord record_of(const Run& run, Index step);

/// Reads the manifest of the checkpoint that `--resume` names, if any, and sets each option that was not
/// given to its recorded value. Seed, optimizer and network must be the checkpoint's; other options may
/// differ. \throws Error file; usage
void take_recorded_options(CLI::App& command, const Chapter& chapter, Arguments& arguments);

}  // namespace shard
