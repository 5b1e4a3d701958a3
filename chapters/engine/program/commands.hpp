#pragma once

/// The commands of a chapter program. Each is called on every device; device 0 prints.

#include <cstdint>
#include <string>

#include "engine/program/chapter.hpp"

namespace shard {

/// What the command line says; see program.cpp for the options' texts.
struct Options {
  std::string command;
  std::string variant;
  EngineOptions engine;
  Index top_k = 0;                       // 0: as the variant says
  std::string capacity_factor = "1.25";  // or "none"
  bool check_claims = false;
  std::string precision = "float32";
  std::uint64_t seed = 0;
  // train
  Model model;
  Index batch = 64;
  Index steps = 200;
  std::string optimizer = "adam";
  float learning_rate = 3e-3F;
  std::string data;
  std::string report;
  // gradients and infer
  std::string params;
  std::string batch_file;
  std::string out;
};

/// Trains on the digits, checks the exact mode and the closed forms, and prints the chapter's row.
/// Returns 0, or 86 when a gradient or a figure differs.
int train(Communicator& group, const Chapter& chapter, const Variant& variant, const Options& options);
/// Writes output, input gradient and weights' gradients of a batch, whole, to a file.
int gradients(Communicator& group, const Chapter& chapter, const Variant& variant, const Options& options);
/// Rows of numbers from standard input through the network to standard output.
int infer(Communicator& group, const Chapter& chapter, const Variant& variant, const Options& options);

}  // namespace shard
