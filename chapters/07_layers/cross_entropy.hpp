#pragma once

/// Softmax with cross entropy: the loss of row i is log Σ_c e^z_ic − z_i,label, and the layer returns the sum
/// over the rows. Rows are free. A cut of the vocabulary costs three numbers a row: the largest element, the
/// sum of the powers, and the label's element. No device ever holds a whole row.

#include "engine/device/layer_operations.hpp"
#include "engine/layers/tokens/cross_entropy.hpp"
#include "layer.hpp"

namespace shard::layer_cuts {

/// What both classes share: the labels, and a softmax whose gradient is (p − 1 at the label) dloss.
template <Layout L>
class LossLayer : public Layer {
 public:
  using Layer::Layer;
  void load_checkpoint(const Checkpoint& c) override {
    Range rows = {0, c.shape("labels").at(0)};
    if (std::same_as<L, Sharded<0>>) rows = part(rows.end, num_devices(), device_id());
    const std::vector<float> labels = c.slice("labels", 0, rows.begin, rows.end).to_host();
    tokens_.set({}, {labels.begin(), labels.end()});
  }
  Placement input_layout() const override { return layout_of<L>(); }
  Gradients backward(Tensor dloss) override {
    const std::vector<float> of_rows(static_cast<std::size_t>(tokens_.labels.size()), dloss.to_host()[0]);
    const Tensor dlosses = Tensor::from_host({std::ssize(of_rows), 1}, of_rows);  // (B, 1)
    Gradients gradients;
    gradients.put(Gradients::input_grad,
                  input<L>(cross_entropy_backward(dlosses, tokens_, how(), std::move(kept_))));
    return gradients;
  }

 protected:
  Tokens tokens_;      // of which this layer has the labels
  TokenSoftmax kept_;  // (B, V), or my rows or columns
};

/// The layer, whole or with its rows cut.
template <Layout Rows>
class CrossEntropy : public LossLayer<Rows> {
 public:
  using LossLayer<Rows>::LossLayer;
  static constexpr SourceLine shown_at = SourceLine::current();

  Placed forward(Tensor logits) override {
    const Rows z = this->template input<Rows>(std::move(logits));  // (B, V)
    return this->over_rows(z, column_sums(shard::cross_entropy(z.local().clone(), this->tokens_, this->how(),
                                                               this->kept_)));  // (1)
  }
};

/// The vocabulary is cut. The naive cut takes the softmax of each device's own columns.
template <bool is_naive>
class CrossEntropyByVocabulary : public LossLayer<Sharded<1>> {
 public:
  using LossLayer::LossLayer;
  static constexpr SourceLine shown_at = SourceLine::current();

  Placed forward(Tensor logits) override {
    const Sharded<1> z = my_slice<1>(std::move(logits));  // (B, V/N)
    kept_.labels = in_slice(tokens_.labels, {z.offset(), z.offset() + z.local().extent(1)});
    const Tensor largest = over_devices(row_max(z.local()), ReduceOp::max);  // (B)
    Tensor powers = exponentials(z.local().clone(), largest, how().base);    // (B, V/N)
    const Tensor sums = over_devices(row_sums(powers), ReduceOp::sum);       // (B)
    const Tensor of_labels = over_devices(take_columns(z.local(), kept_.labels, 1), ReduceOp::sum);  // (B, 1)
    kept_.p = divide_rows(std::move(powers), sums);  // (B, V/N)
    return Replicated(group(), column_sums(token_losses(largest, sums, of_labels, tokens_, how())));  // (1)
  }

 private:
  Tensor over_devices(Tensor mine, ReduceOp op) {
    if constexpr (is_naive) return mine;
    return all_reduce(std::move(mine), op);
  }
};

}  // namespace shard::layer_cuts
