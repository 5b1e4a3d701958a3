#pragma once

#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard {

class Checkpoint;

/// The network of most chapters: `num_layers` matrices, alternately (model_dim, hidden_dim) and (hidden_dim,
/// model_dim), with a ReLU before each odd one. Two layers are the MLP of the text, ReLU(x W0) W1.
///
/// There is no ReLU between blocks, so W1 of one and W0 of the next could be multiplied out: that is for
/// symmetry of the chapters, not for learning.
struct Model {
  Index num_layers = 2;
  Index model_dim = 64;
  Index hidden_dim = 128;

  /// Width of the activation that goes into `layer`; of layer num_layers: the width of the output.
  Index width(Index layer) const { return layer % 2 == 0 ? model_dim : hidden_dim; }
  /// (rows, columns) of a layer's weights.
  Shape shape(Index layer) const { return {width(layer), width(layer + 1)}; }
  /// Elements of one layer's weights, and of all of a stack.
  Index weights(Index layer) const { return width(layer) * width(layer + 1); }
  Index weights() const;
  bool operator==(const Model&) const = default;
};

/// Elements of a stack's weights, of stacks of any size.
double stack_elements(const Model& model);

/// "layer_0/weights", ...
std::string layer_name(Index layer);

/// The names of all layers of the stack that a checkpoint holds. \throws Error file as model_of does
std::vector<std::string> layer_names(const Checkpoint& checkpoint);

/// Whether a layer's input goes through a ReLU first.
constexpr bool relu_before(Index layer) {
  return layer % 2 == 1;
}

/// The stack that a checkpoint holds, from its names and shapes.
/// \throws Error file naming the parameter that is missing, unknown or of the wrong shape
Model model_of(const Checkpoint& checkpoint);

/// Its number of layers, for an engine that cuts them in blocks of two. \throws Error file when it is odd
Index layers_in_blocks(const Checkpoint& checkpoint);

/// \throws Error file: what is wrong with a parameter
[[noreturn]] void refuse_parameter(const Checkpoint& from, const std::string& name,
                                   const std::string& expected, const std::string& given);
/// \throws Error file unless the parameter has this shape; asks whether it is PyTorch's when it is the
/// transposed
void require_parameter(const Checkpoint& from, const std::string& name, const Shape& expected);

}  // namespace shard
