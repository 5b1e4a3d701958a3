#pragma once

/// The commands of a chapter program. Each is called on every device of a group; device 0 prints.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/checkpoints/save.hpp"
#include "engine/device/communicator/fault.hpp"
#include "engine/program/registry.hpp"

namespace shard {

/// The parsed command line; command_options.cpp has the options and their help texts.
struct Arguments {
  std::string command;
  std::string variant;
  Options options;  ///< of the variant and its workload
  bool check_claims = false;
  bool unchecked = false;  ///< reductions do not check that all devices make the same call
  std::string precision = "float32";
  std::optional<Fault> fault;
  std::string record;  ///< the file of the run's record
  Index record_steps = 1;
  std::uint64_t seed = 0;
  // train
  Index batch = 64;
  Index steps = 200;
  std::string optimizer = "adam";
  float learning_rate = 3e-3F;
  std::optional<double> clip_norm;
  std::string report;
  bool times = false;                       ///< the table has the time of a step
  std::string resume;                       ///< the folder of the checkpoint to resume
  std::shared_ptr<const Manifest> resumed;  ///< the manifest of that checkpoint
  // train and save
  std::string save;  ///< the folder
  Index save_every = 0;
  SaveForm form;
  // all commands that read checkpoints
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
/// The network of --config, or else of the options. \throws Error file; usage for an option that config.json
/// determines
std::shared_ptr<Workload> network_of(const WorkloadKind& kind, const Arguments& arguments);
/// Prints, on device 0, what this variant, or each that trains such networks, sends, computes and holds in a
/// training step. Tensors need no elements.
int costs(Communicator& group, const Chapter& chapter, const Variant& variant, const Arguments& arguments);
/// Prints, on device 0, which part of each parameter each device reads when it loads a network.
int owns(Communicator& group, const Variant& variant, const Arguments& arguments);
/// Saves the parameters of a file or a folder in the layout of this variant's devices.
int save(Communicator& group, const Variant& variant, const Arguments& arguments);
/// Writes the output, dL/dx and the weights' gradients of a batch, whole, to a file.
int gradients(Communicator& group, const Variant& variant, const Arguments& arguments);
/// Rows of numbers, or sequences of tokens, from standard input through the network to standard output.
int infer(Communicator& group, const Variant& variant, const Arguments& arguments);
/// Prints, on device 0, the tokens that a language model generates after a prompt, each the likeliest.
int generate(Communicator& group, const Variant& variant, const Arguments& arguments);
/// Prints all chapters of this program as JSON, on device 0.
int list_chapters(Communicator& group);
/// Prints the table of a tour from its reports, and whether the loss curves of all chapters agree.
int summarize(const std::vector<std::string>& report_files);

/// The main functions of a program with one chapter, and of one with all of them.
/// @{
int chapter_main(int argc, char** argv);
int shardbook_main(int argc, char** argv);
/// @}

}  // namespace shard
