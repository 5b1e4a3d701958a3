#pragma once

/// Stages: a stack of layers, cut into contiguous parts.

#include <string>
#include <vector>

#include "engine/layouts.hpp"
#include "engine/workloads/mlp_layers.hpp"

namespace shard::pipeline {

/// The layers of each stage. `how`:
///   equal   as many for each, the first ones with one more where they do not divide
///   flops   so that the most expensive stage computes as little as possible; layer 0 needs no dL/dx
///   bytes   so that the largest stage's parameters, gradients and Adam's state take as few bytes as possible
///   3,2,3   that many
/// \throws Error usage when there are fewer layers than stages, or the list does not fit
std::vector<Range> cut_into_stages(const Model& model, int stages, const std::string& how);

/// Contiguous parts of a row of costs, none of them empty, so that the largest sum of a part is as small as
/// it can be; of several such cuts the one whose first parts are largest.
std::vector<Range> cut_by_cost(const std::vector<Index>& costs, int parts);

/// What this device knows of the pipeline: which layers make a stage, and their weights.
struct Stages {
  std::vector<Range> layers;   ///< of each stage
  std::vector<Owned> weights;  ///< of each layer, (D, F), (F, D), ...; those of other devices are absent

  /// How many stages there are, on all devices.
  int count() const { return static_cast<int>(layers.size()); }
  Range of(int stage) const { return layers[static_cast<std::size_t>(stage)]; }
  int device_of(int stage) const { return weights[static_cast<std::size_t>(of(stage).begin)].owner(); }
  Owned& weight(Index layer) { return weights[static_cast<std::size_t>(layer)]; }
  /// Width of what goes into a stage; of stage count(): of the output.
  Index width(int stage) const {
    if (stage < count()) return weights[static_cast<std::size_t>(of(stage).begin)].global_shape()[0];
    return weights.back().global_shape()[1];
  }
};

}  // namespace shard::pipeline
