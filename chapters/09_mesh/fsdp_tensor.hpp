#pragma once

///     ./chapters/run 09 -n 4 train --variant fsdp-tensor
///
/// Fully sharded and tensor parallel at once. Each matrix is divided over tensor as before, and over data
/// along its other dimension: W0 is (S0, S1), and W1 is (S1, S0). So no two axes cut one dimension. Before a
/// product, the devices along data gather their part of the weights. Gradients are reduce-scattered over
/// data. In the comments M is the number of devices along data, and N that along tensor.
/// Builds on: 09_mesh/data_tensor.hpp.

#include "axes.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::meshes {

class FsdpTensor : public MeshEngine<DataTensorAxes> {
 public:
  using MeshEngine::MeshEngine;

  /// ## What this device owns
  /// Of F/N columns of each even layer D/M rows, and of the matching F/N rows of each odd one D/M columns.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    const Index num_layers = layers_in_blocks(checkpoint);
    blocks_.clear();
    for (Index l = 0; l < num_layers; l += 2)
      blocks_.push_back(
          {load<S<0>, S<1>>(checkpoint, layer_name(l)), load<S<1>, S<0>>(checkpoint, layer_name(l + 1))});
  }

  /// ## Forward
  Placed forward(Tensor input) override {
    On<S<0>, R> x = from_outside<S<0>, R>(std::move(input));  // (b, D)     my rows, whole
    std::vector<Kept> kept;
    for (const Block& block : blocks_) {
      On<R, S<1>> w0 = all_gather<data>(block.w0);  // (D, F/N)   (S0, S1) → (R, S1)
      On<S<0>, S<1>> h = relu(matmul(x, w0));       // (b, F/N)   (S0, R)·(R, S1) = (S0, S1)
      w0 = {};                                      //            freed
      On<R, S<0>> w1 = all_gather<data>(block.w1);  // (F/N, D)   (S1, S0) → (R, S0)
      On<S<0>, P> out = matmul(h, w1);              // (b, D)     (S0, S1)·(R, S0) = (S0, P)
      w1 = {};
      kept.push_back({std::move(x), std::move(h)});
      x = all_reduce<tensor>(std::move(out));  // (b, D)     (S0, P) → (S0, R)
    }
    tape_.push(std::move(kept));
    return x;
  }

  /// ## Backward
  /// Each device gets its part of the sum over data. The weights are gathered again.
  Gradients backward(Tensor dout) override {
    auto [kept] = tape_.pop();
    On<S<0>, R> d = from_outside<S<0>, R>(std::move(dout));  // (b, D)
    Gradients gradients;
    for (Index i = num_blocks() - 1; i >= 0; --i, kept.pop_back()) {
      const auto& [x, h] = kept.back();
      const Block& block = blocks_[static_cast<std::size_t>(i)];
      On<P, S<0>> dw1 = matmul(transposed(h), d);  // (F/N, D)     (S0, S1)ᵀ·(S0, R) = (P, S0)
      gradients.put(layer_name(2 * i + 1),
                    reduce_scatter<data, 1>(std::move(dw1)));  // (F/N, D/M)   (P, S0) → (S1, S0)
      On<R, S<0>> w1 = all_gather<data>(block.w1);             // (F/N, D)     (S1, S0) → (R, S0)
      On<S<0>, S<1>> dh = matmul(d, transposed(w1));           // (b, F/N)     (S0, R)·(R, S0)ᵀ = (S0, S1)
      w1 = {};
      On<S<0>, S<1>> dz = relu_backward(std::move(dh), h);  // (b, F/N)
      On<P, S<1>> dw0 = matmul(transposed(x), dz);          // (D, F/N)     (S0, R)ᵀ·(S0, S1) = (P, S1)
      gradients.put(layer_name(2 * i),
                    reduce_scatter<data, 0>(std::move(dw0)));  // (D/M, F/N)   (P, S1) → (S0, S1)
      if (i == 0 && !wants_input_grad()) continue;
      On<R, S<1>> w0 = all_gather<data>(block.w0);  // (D, F/N)     (S0, S1) → (R, S1)
      On<S<0>, P> dx = matmul(dz, transposed(w0));  // (b, D)       (S0, S1)·(R, S1)ᵀ = (S0, P)
      w0 = {};
      d = all_reduce<tensor>(std::move(dx));  // (b, D)       (S0, P) → (S0, R)
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }

  Placement input_layout() const override { return placement<S<0>, R>(); }

  Trainables trainable() override { return layers(blocks_, &Block::w0, &Block::w1); }

 private:
  struct Block {
    On<S<0>, S<1>> w0;  // (D/M, F/N)   my rows of my columns
    On<S<1>, S<0>> w1;  // (F/N, D/M)   my columns of my rows
  };
  struct Kept {
    On<S<0>, R> x;     // (b, D)
    On<S<0>, S<1>> h;  // (b, F/N)
  };

  Index num_blocks() const { return static_cast<Index>(blocks_.size()); }

  std::vector<Block> blocks_;
  Tape<std::vector<Kept>> tape_;  // each block's activations
};

}  // namespace shard::meshes
