#pragma once

#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard {

class Checkpoint;

/// The network of most chapters: `num_layers` matrices, alternately (model_dim, hidden_dim) and (hidden_dim,
/// model_dim), with a ReLU before each odd one. Two layers are the MLP of the text, ReLU(x W0) W1.
///
/// There is no ReLU between blocks, so W1 of a block and W0 of the next could be one matrix. Blocks are equal
/// for the sake of simple chapters, not of learning.
struct Model {
  Index num_layers = 2;
  Index model_dim = 64;
  Index hidden_dim = 128;

  /// The width of the input of `layer`. For layer num_layers: the width of the output.
  Index width(Index layer) const { return layer % 2 == 0 ? model_dim : hidden_dim; }
  /// (rows, columns) of a layer's weights.
  Shape shape(Index layer) const { return {width(layer), width(layer + 1)}; }
  /// The number of elements of one layer's weights, and of all weights of a stack.
  Index weights(Index layer) const { return width(layer) * width(layer + 1); }
  Index weights() const;
  bool operator==(const Model&) const = default;
};

/// The number of elements of a stack's weights. A double also holds it for the largest stacks.
double stack_elements(const Model& model);

/// "layer_0/weights", ...
std::string layer_name(Index layer);

/// The names of all layers of the stack that a checkpoint holds. \throws Error file as model_of does
std::vector<std::string> layer_names(const Checkpoint& checkpoint);

/// Whether a ReLU comes before a layer.
constexpr bool relu_before(Index layer) {
  return layer % 2 == 1;
}

/// The stack with the names and shapes of a checkpoint. \throws Error file naming the parameter that is
/// missing, unknown or of the wrong shape
Model model_of(const Checkpoint& checkpoint);

/// The number of layers, for an engine with blocks of two. \throws Error file when it is odd
Index layers_in_blocks(const Checkpoint& checkpoint);

/// \throws Error file: what is wrong with a parameter
[[noreturn]] void refuse_parameter(const Checkpoint& from, const std::string& name,
                                   const std::string& expected, const std::string& given);
/// The shape of a matrix. \throws Error file unless it is one of at least 1 by 1
Shape matrix_shape(const Checkpoint& checkpoint, const std::string& name);
/// \throws Error file unless the parameter has this shape. The message for the transposed shape asks whether
/// it is PyTorch's
void require_parameter(const Checkpoint& from, const std::string& name, const Shape& expected);

}  // namespace shard
