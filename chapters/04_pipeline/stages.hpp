#pragma once

/// Stages: a stack of layers, cut into contiguous parts.

#include <string>
#include <vector>

#include "engine/layouts/layouts.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::pipeline {

/// Cuts the layers into stages. `how` is one of these:
///   equal   as many layers for each stage; if there is a rest, one more for each of the first stages
///   flops   so that the most expensive stage computes as little as possible; layer 0 needs no dL/dx
///   bytes   so that the largest stage's parameters, gradients and Adam's state take as few bytes as possible
///   3,2,3   these numbers of layers
/// \throws Error usage when there are fewer layers than stages, or the list does not fit
std::vector<Range> cut_into_stages(const Model& model, int stages, const std::string& how);

/// The stages of the pipeline: the layers of each, and the weights that this device holds.
struct Stages {
  std::vector<Range> layers;   ///< of each stage
  std::vector<Owned> weights;  ///< of each layer, (D, F), (F, D), ...; those of other devices are absent

  /// How many stages there are, on all devices.
  int count() const { return static_cast<int>(layers.size()); }
  Range of(int stage) const { return layers[static_cast<std::size_t>(stage)]; }
  int device_of(int stage) const { return weights[static_cast<std::size_t>(of(stage).begin)].owner(); }
  Owned& weight(Index layer) { return weights[static_cast<std::size_t>(layer)]; }
  /// The width of a stage's input. For stage count(), it is the width of the output.
  Index width(int stage) const {
    if (stage < count()) return weights[static_cast<std::size_t>(of(stage).begin)].global_shape()[0];
    return weights.back().global_shape()[1];
  }
};

/// Takes a micro-batch forward through a stage. Adds each layer's input to `inputs`, unless that is null.
inline Owned through_stage(Stages& stages, int stage, Owned a, std::vector<Owned>* inputs) {
  for (Index l = stages.of(stage).begin; l < stages.of(stage).end; ++l) {
    if (relu_before(l)) a = relu(std::move(a));  // (b, F)
    Owned out = matmul(a, stages.weight(l));     // (b, F) or (b, D)    O·O = O
    if (inputs != nullptr) inputs->push_back(std::move(a));
    a = std::move(out);
  }
  return a;
}

}  // namespace shard::pipeline
