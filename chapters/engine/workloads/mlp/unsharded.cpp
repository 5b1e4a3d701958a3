#include "engine/workloads/mlp/unsharded.hpp"

#include "engine/workloads/mlp/layers.hpp"

namespace shard {

namespace {

/// An engine with whole tensors. Weights are Replicated, since optimizers need layouts.
class UnshardedMlp : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  void load_checkpoint(const Checkpoint& checkpoint) override {
    weights_ = load_all<Replicated>(checkpoint, layer_names(checkpoint));
  }

  Placed forward(Tensor x) override {  // (B, D)
    inputs_.clear();
    for (Index l = 0; l < num_layers(); ++l) {
      if (relu_before(l)) x = relu(std::move(x));
      Tensor out = matmul(x, weights(l));
      inputs_.push_back(std::move(x));
      x = std::move(out);
    }
    return Replicated(group(), std::move(x));
  }

  Gradients backward(Tensor d) override {  // like the output
    Gradients gradients;
    for (Index l = num_layers() - 1; l >= 0; --l) {
      const Tensor& a = inputs_[static_cast<std::size_t>(l)];
      gradients.put(layer_name(l), Replicated(group(), matmul(transposed(a), d)));
      d = matmul(d, transposed(weights(l)));
      if (relu_before(l)) d = relu_backward(std::move(d), a);
    }
    if (wants_input_grad()) gradients.put(Gradients::input_grad, Replicated(group(), std::move(d)));
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return layers(weights_); }

 private:
  Index num_layers() const { return static_cast<Index>(weights_.size()); }
  const Tensor& weights(Index l) const { return weights_[static_cast<std::size_t>(l)].local(); }

  std::vector<Replicated> weights_;  // (D, F), (F, D), ...
  std::vector<Tensor> inputs_;       // each layer's input
};

}  // namespace

std::unique_ptr<ShardedEngine> unsharded_mlp(Communicator& alone) {
  return std::make_unique<UnshardedMlp>(alone);
}

}  // namespace shard
