#pragma once

#include "engine/checkpoints/save.hpp"
#include "engine/program/commands/parameters.hpp"

namespace shard {

/// Saves the parameters of a file or a folder in the layout of this variant's devices.
struct SaveCommand : Command {
  void add_options(const CommandLine& line) override;
  int run(Communicator& group, const Chapter& chapter) const override;

  ParametersGiven params;
  std::string out;
  SaveForm form;
};

/// Writes the output, dL/dx and the weights' gradients of a batch, whole, to a file.
struct GradientsCommand : Command {
  void add_options(const CommandLine& line) override;
  int run(Communicator& group, const Chapter& chapter) const override;

  ParametersGiven params;
  std::string batch;
  std::string out;
};

/// Rows of numbers, or sequences of tokens, from standard input through the network to standard output.
struct InferCommand : Command {
  void add_options(const CommandLine& line) override;
  void complete(const CommandLine& line) override;
  int run(Communicator& group, const Chapter& chapter) const override;
  /// With a variant that no chapter has.
  int run_with(Communicator& group, const Variant& chosen) const;

  ParametersGiven params;
  Index batch = 0;
};

/// Prints, on device 0, the tokens that a language model generates after a prompt, each the likeliest.
struct GenerateCommand : Command {
  void add_options(const CommandLine& line) override;
  int run(Communicator& group, const Chapter& chapter) const override;
  /// With a variant that no chapter has.
  int run_with(Communicator& group, const Variant& chosen) const;

  ParametersGiven params;
  std::string ids;
  std::string text;
  Index tokens = 32;
};

}  // namespace shard
