#pragma once

/// The commands of a chapter program. Each is called on every device of a group; device 0 prints.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/checkpoints/save.hpp"
#include "engine/device/fault.hpp"
#include "engine/program/registry.hpp"

namespace shard {

/// What the command line says; see chapter_command_line.cpp for the options' texts.
struct Arguments {
  std::string command;
  std::string variant;
  Options options;  ///< those that the variant and its workload declare
  bool check_claims = false;
  bool unchecked = false;  ///< reductions do not compare what the devices call
  std::string precision = "float32";
  std::optional<Fault> fault;
  std::uint64_t seed = 0;
  // train
  Index batch = 64;
  Index steps = 200;
  std::string optimizer = "adam";
  float learning_rate = 3e-3F;
  std::optional<double> clip_norm;
  std::string report;
  std::string resume;                       ///< a checkpoint's folder, to go on from
  std::shared_ptr<const Manifest> resumed;  ///< what it says of itself
  // train and save
  std::string save;  ///< the folder
  Index save_every = 0;
  SaveForm form;
  // all that read checkpoints
  bool unverified = false;  ///< digests are not compared
  // costs
  std::optional<std::string> only_variant;
  std::string config;
  bool json = false;
  // gradients, infer and generate
  std::string params;
  std::optional<std::string> block;
  std::string batch_file;
  std::string out;
  // generate
  std::string ids;
  std::string text;
  Index tokens = 32;
};

/// Parses `words`, which follow the program's name, and carries out the command. Returns an exit code.
int run_chapter(Communicator& group, const Chapter& chapter, const std::vector<std::string>& words);

/// Trains, checks the exact mode and the closed forms, and prints the chapter's row. Returns 0, or 86 when a
/// gradient or a figure differs.
int train(Communicator& group, const Chapter& chapter, const Variant& variant, const Arguments& arguments);
/// What this variant, or each that trains such networks, sends, computes and holds in a training step, on device 0.
/// Tensors need have no elements.
int costs(Communicator& group, const Chapter& chapter, const Variant& variant, const Arguments& arguments);
/// Which part of each parameter each device reads when it loads a network, on device 0.
int owns(Communicator& group, const Variant& variant, const Arguments& arguments);
/// Saves parameters that a file or a folder has, as this variant's devices hold them.
int save(Communicator& group, const Variant& variant, const Arguments& arguments);
/// Writes output, input gradient and weights' gradients of a batch, whole, to a file.
int gradients(Communicator& group, const Variant& variant, const Arguments& arguments);
/// Rows of numbers, or sequences of tokens, from standard input through the network to standard output.
int infer(Communicator& group, const Variant& variant, const Arguments& arguments);
/// The tokens that a language model says after a prompt, on device 0: each the likeliest.
int generate(Communicator& group, const Variant& variant, const Arguments& arguments);
/// All chapters of this program, as JSON, on device 0.
int list_chapters(Communicator& group);
/// The table that a tour ends in, from its reports, and whether all chapters learned the same.
int summarize(const std::vector<std::string>& report_files);

/// The main functions of a program with one chapter, and of one with all of them.
/// @{
int chapter_main(int argc, char** argv);
int shardbook_main(int argc, char** argv);
/// @}

}  // namespace shard
