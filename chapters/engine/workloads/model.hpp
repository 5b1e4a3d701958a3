#pragma once

#include <string>

#include "engine/device/device.hpp"

namespace shard {

class Checkpoint;

/// The network of every chapter: `num_layers` matrices, alternately (model_dim, hidden_dim) and (hidden_dim,
/// model_dim), with a ReLU before each odd one. Two layers are the MLP of the text, ReLU(x W0) W1.
///
/// There is no ReLU between blocks, so W1 of one and W0 of the next could be multiplied out: that is for
/// symmetry of the chapters, not for learning.
struct Model {
  Index num_layers = 2;
  Index model_dim = 64;
  Index hidden_dim = 128;
  Index num_experts = 0;  ///< of a mixture (chapter 05), each such a stack; 0: one stack, no router

  /// Width of the activation that goes into `layer`; of layer num_layers: the width of the output.
  Index width(Index layer) const { return layer % 2 == 0 ? model_dim : hidden_dim; }
  /// (rows, columns) of a layer's weights.
  Shape shape(Index layer) const { return {width(layer), width(layer + 1)}; }
  /// Elements of one layer's weights, and of all of a stack.
  Index weights(Index layer) const { return width(layer) * width(layer + 1); }
  Index weights() const;
  bool operator==(const Model&) const = default;
};

/// "layer_0/weights", ...
std::string layer_name(Index layer);

/// \name Names of a mixture's parameters
/// @{
/// "router/weights": (model_dim, num_experts).
std::string router_name();
/// "expert_3/layer_0/weights", ...: shaped like the layers of a stack.
std::string expert_layer_name(Index expert, Index layer);
/// @}

/// The stack, or the mixture, that a checkpoint holds, from its names and shapes.
/// \throws Error file naming the parameter that is missing, unknown or of the wrong shape
/// @{
Model model_of(const Checkpoint& checkpoint);
Model mixture_of(const Checkpoint& checkpoint);
/// @}

}  // namespace shard
