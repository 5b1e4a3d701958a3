#pragma once

///     ./chapters/run 09 -n 4
///
/// Data parallel and tensor parallel at once. The rows of the batch are divided over the axis data. Along the
/// axis tensor, N devices do with their rows what chapter 03 does. Gradients are summed over data.
/// The weights are divided: layer 0 by columns, layer 1 by rows (Shoeybi et al. 2019, "Megatron-LM", section
/// 3). A device computes its columns of the hidden activation, and the ReLU of these columns without any
/// communication. It multiplies them by its rows of the second matrix, which gives one addend of the output.
/// So a block of two layers needs one all-reduce in the forward pass, and one in the backward pass for dL/dx.
/// Builds on: 03_tensor_parallel/tensor_parallel.hpp.

#include "axes.hpp"
#include "engine/workloads/mlp/layers.hpp"

namespace shard::meshes {

class DataTensor : public MeshEngine<DataTensorAxes> {
 public:
  using MeshEngine::MeshEngine;

  /// ## What this device owns
  /// F/N columns of each even layer and the matching F/N rows of each odd one.
  void load_checkpoint(const Checkpoint& checkpoint) override {
    const Index num_layers = layers_in_blocks(checkpoint);
    blocks_.clear();
    for (Index l = 0; l < num_layers; l += 2)
      blocks_.push_back(
          {load<R, S<1>>(checkpoint, layer_name(l)), load<R, S<0>>(checkpoint, layer_name(l + 1))});
  }

  /// ## Forward
  Placed forward(Tensor input) override {
    On<S<0>, R> x = from_outside<S<0>, R>(std::move(input));  // (b, D)     my rows, whole
    std::vector<Kept> kept;
    for (const Block& block : blocks_) {
      On<S<0>, S<1>> h = relu(matmul(x, block.w0));  // (b, F/N)   (S0, R)·(R, S1) = (S0, S1)
      On<S<0>, P> out = matmul(h, block.w1);         // (b, D)     (S0, S1)·(R, S0) = (S0, P)
      kept.push_back({std::move(x), std::move(h)});
      x = all_reduce<tensor>(std::move(out));  // (b, D)     (S0, P) → (S0, R)
    }
    tape_.push(std::move(kept));
    return x;
  }

  /// ## Backward
  /// A gradient of weights is divided like the weights, and is an addend over data: a sum over rows.
  Gradients backward(Tensor dout) override {
    auto [kept] = tape_.pop();
    On<S<0>, R> d = from_outside<S<0>, R>(std::move(dout));  // (b, D)
    Gradients gradients;
    for (Index i = num_blocks() - 1; i >= 0; --i, kept.pop_back()) {
      const auto& [x, h] = kept.back();
      const Block& block = blocks_[static_cast<std::size_t>(i)];
      On<P, S<0>> dw1 = matmul(transposed(h), d);  // (F/N, D)   (S0, S1)ᵀ·(S0, R) = (P, S0)
      gradients.put(layer_name(2 * i + 1), all_reduce<data>(std::move(dw1)));  // (P, S0) → (R, S0)
      On<S<0>, S<1>> dh = matmul(d, transposed(block.w1));  // (b, F/N)   (S0, R)·(R, S0)ᵀ = (S0, S1)
      On<S<0>, S<1>> dz = relu_backward(std::move(dh), h);  // (b, F/N)
      On<P, S<1>> dw0 = matmul(transposed(x), dz);          // (D, F/N)   (S0, R)ᵀ·(S0, S1) = (P, S1)
      gradients.put(layer_name(2 * i), all_reduce<data>(std::move(dw0)));  // (P, S1) → (R, S1)
      if (i == 0 && !wants_input_grad()) continue;
      On<S<0>, P> dx = matmul(dz, transposed(block.w0));  // (b, D)     (S0, S1)·(R, S1)ᵀ = (S0, P)
      d = all_reduce<tensor>(std::move(dx));              // (b, D)     (S0, P) → (S0, R)
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, std::move(d));
    return gradients;
  }

  Placement input_layout() const override { return placement<S<0>, R>(); }

  Trainables trainable() override { return layers(blocks_, &Block::w0, &Block::w1); }

 private:
  struct Block {
    On<R, S<1>> w0;  // (D, F/N)   my columns
    On<R, S<0>> w1;  // (F/N, D)   my rows
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
