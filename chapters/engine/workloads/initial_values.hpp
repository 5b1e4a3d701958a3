#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/weights/checkpoint.hpp"

namespace shard {

/// A parameter before training: its shape, and initial values uniform in center ± bound.
struct Parameter {
  std::string name;
  Shape shape;
  float bound = 0;
  float center = 0;
};

/// Initial values from a counter-based generator, keyed by seed, parameter name and global index: every
/// layout starts from the same network.
std::unique_ptr<Checkpoint> generate_checkpoint(const std::vector<Parameter>& parameters, std::uint64_t seed);

}  // namespace shard
