#pragma once

///     ./chapters/run 09 -n 4 train --variant summa
///
/// Matrices in blocks: both axes of the mesh cut every matrix, weights and activations alike. Device (i, j)
/// has block (i, j) of each, so every layout is (S0, S1). A product needs blocks of other devices, and the
/// engine is chapter 01's with another product: SUMMA's, Cannon's, or one that gathers both factors.
/// Builds on: 01_single_device.

#include "engine/engines/mesh_engine.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::meshes {

/// The rows of each matrix are cut over this axis.
struct rows {
  static constexpr const char* name = "rows";
};
/// The columns of each matrix are cut over this axis.
struct columns {
  static constexpr const char* name = "columns";
};

using namespace letters;  // R, S<0>, S<1>, P
using BlockAxes = MeshAxes<rows, columns>;
using BlockEngine = MeshEngine<BlockAxes>;

/// Block (i, j) of a matrix, on the device with the place i on rows and j on columns.
using Block = OnMesh<BlockAxes, S<0>, S<1>>;

/// The shape of this device's block of a matrix.
inline Shape my_block_of(const Mesh& mesh, const Shape& global) {
  return shape_after(Block::cuts(mesh), global);
}

template <class Product>
class Blocks : public BlockEngine {
 public:
  using BlockEngine::BlockEngine;

  /// ## What this device owns
  /// One block of each matrix.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    weights_.clear();
    for (const std::string& name : layer_names(checkpoint))
      weights_.push_back(load<S<0>, S<1>>(checkpoint, name));
  }

  /// ## Forward
  /// The loss reads whole rows, so the input enters and the output leaves with whole rows. b rows, and d and
  /// f columns, are this device's parts.
  Placed forward(Tensor input) override {
    Block a = my_columns(std::move(input));  // (b, d)
    std::vector<Block> inputs;
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      if (relu_before(l)) a = relu(std::move(a));   // (b, f)
      Block out = product_(*this, a, weights_[l]);  // (b, f) for even l, (b, d) for odd l
      inputs.push_back(std::move(a));
      a = std::move(out);
    }
    tape_.push(std::move(inputs));
    return all_gather<columns>(std::move(a));  // (b, D)   (S0, S1) → (S0, R)
  }

  /// ## Backward
  Gradients backward(Tensor dout) override {
    auto [inputs] = tape_.pop();
    Block d = my_columns(std::move(dout));  // like the last layer's output
    Gradients gradients;
    for (std::size_t l = weights_.size(); l-- > 0; inputs.pop_back()) {
      const Block& a = inputs[l];                                                        // (b, d) or (b, f)
      gradients.put(layer_name(l), product_(*this, transposed(a), d));                   // like the weights
      if (l > 0 || wants_input_grad()) d = product_(*this, d, transposed(weights_[l]));  // like a
      if (relu_before(l)) d = relu_backward(std::move(d), a);
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));  // (b, d)
    return gradients;
  }

  Placement input_layout() const override { return placement<S<0>, R>(); }

  Trainables trainable() override { return layers(weights_); }

 private:
  /// (S0, R) → (S0, S1), without communication.
  Block my_columns(Tensor whole_rows) {
    return shard<columns, 1>(from_outside<S<0>, R>(std::move(whole_rows)));
  }

  static constexpr Product product_{};
  std::vector<Block> weights_;     // (d, f), (f, d), ...: my blocks
  Tape<std::vector<Block>> tape_;  // each layer's input
};

}  // namespace shard::meshes
