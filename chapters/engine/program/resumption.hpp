#pragma once

/// How a training goes on from a checkpoint: with the options that it had, unless others are given.

#include <CLI/CLI.hpp>

#include "engine/program/training_step.hpp"

namespace shard {

/// What is to be known of a run after this step to go on from there.
TrainingRecord record_of(const Run& run, Index step);

/// Reads the manifest of the checkpoint that `--resume` names, if any, and takes its value of each option that
/// was not given. Seed, optimizer and network must be the checkpoint's; other options may differ.
/// \throws Error file; usage
void take_recorded_options(CLI::App& command, const Chapter& chapter, Arguments& arguments);

}  // namespace shard
