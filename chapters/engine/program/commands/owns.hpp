#pragma once

#include "engine/program/command.hpp"

namespace shard {

/// Prints, on device 0, which part of each parameter each device reads when it loads a network.
struct OwnsCommand : Command {
  void add_options(const CommandLine& line) override;
  void complete(const CommandLine& line) override;
  int run(Communicator& group, const Chapter& chapter) const override;

  std::string config;
};

}  // namespace shard
