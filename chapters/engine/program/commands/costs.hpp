#pragma once

#include "engine/program/command.hpp"

namespace shard {

/// Prints, on device 0, what this variant, or each that trains such networks, sends, computes and holds in a
/// training step. Tensors need no elements.
struct CostsCommand : Command {
  void add_options(const CommandLine& line) override;
  void complete(const CommandLine& line) override;
  int run(Communicator& group, const Chapter& chapter) const override;

  std::string config;
  bool json = false;
  int devices = 1;
  Index batch = 0;
  std::string optimizer = "adam";
};

}  // namespace shard
