#pragma once

/// Softmax with cross entropy: the loss of row i is log Σ_c e^z_ic − z_i,label, and the layer returns the sum
/// over the rows. Rows are free. A cut of the vocabulary costs three numbers a row: the largest element, the
/// sum of the powers, and the label's element. No device ever holds a whole row.

#include <cmath>

#include "layer.hpp"

namespace shard::layer_cuts {

/// The labels of some rows.
inline std::vector<Index> labels_of(const Checkpoint& c, Range rows) {
  std::vector<Index> labels;
  for (float label : c.slice("labels", 0, rows.begin, rows.end).to_host())
    labels.push_back(static_cast<Index>(label));
  return labels;
}

class LossLayer : public Layer {
 public:
  using Layer::Layer;

 protected:
  /// Σ_i of the rows' losses, (1): computed on the host, since it is a number for people.
  Tensor loss(const Tensor& largest, const Tensor& sums, const Tensor& of_labels) const {
    const std::vector<float> m = largest.to_host(), s = sums.to_host(), z = of_labels.to_host();
    std::vector<float> rows;
    for (std::size_t i = 0; i < m.size(); ++i) {
      const double log = base() == ExponentialBase::two ? std::log2(s[i]) : std::log(s[i]);
      rows.push_back(static_cast<float>(m[i] + log - z[i]));
    }
    const Tensor all = rounded(Tensor::from_host({1, static_cast<Index>(rows.size())}, rows));
    return row_sums(all);
  }
  /// dz = (p − 1 at the label) dloss. Consumes nothing, since p stays where it is.
  static Tensor logits_gradient(const Tensor& p, const std::vector<Index>& labels, const Tensor& dloss) {
    const Tensor ones = Tensor::from_host({p.extent(0), 1}, std::vector<float>(labels.size(), 1));
    return scale(subtract_at_columns(p.clone(), labels, ones), dloss.to_host()[0]);
  }
};

/// The layer, whole or with its rows cut.
template <Layout Rows>
class CrossEntropy : public LossLayer {
 public:
  using LossLayer::LossLayer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    const Index rows = c.shape("labels").at(0);
    const bool is_whole = std::same_as<Rows, Replicated>;
    labels_ = labels_of(c, is_whole ? Range{0, rows} : part(rows, num_devices(), device_id()));
  }
  Placement input_layout() const override { return layout_of<Rows>(); }

  Placed forward(Tensor logits) override {
    const Rows z = input<Rows>(std::move(logits));                     // (B, V)
    const Tensor largest = row_max(z.local());                         // (B)
    Tensor powers = exponentials(z.local().clone(), largest, base());  // (B, V)
    const Tensor sums = row_sums(powers);                              // (B)
    const Tensor of_labels = take_columns(z.local(), labels_, 1);      // (B, 1)
    p_ = as(z, rounded(divide_rows(std::move(powers), sums)));         // (B, V)  softmax
    return over_rows(z, loss(largest, sums, of_labels));               // (1)
  }
  Gradients backward(Tensor dloss) override {
    Gradients gradients;
    gradients.put(Gradients::input_grad, as(p_, logits_gradient(p_.local(), labels_, dloss)));
    return gradients;
  }

 private:
  Rows p_;  // (B, V)
  std::vector<Index> labels_;
};

/// The vocabulary is cut. The naive cut takes the softmax of each device's own columns.
template <bool is_naive>
class CrossEntropyByVocabulary : public LossLayer {
 public:
  using LossLayer::LossLayer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override { labels_ = labels_of(c, {0, c.shape("labels").at(0)}); }
  Placement input_layout() const override { return Placement::sharded(1); }

  Placed forward(Tensor logits) override {
    const Sharded<1> z = my_slice<1>(std::move(logits));  // (B, V/N)
    for (Index& label : labels_) {
      label -= z.offset();
      if (label < 0 || label >= z.local().extent(1)) label = no_slot;
    }
    const Tensor largest = over_devices(row_max(z.local()), ReduceOp::max);                     // (B)
    Tensor powers = exponentials(z.local().clone(), largest, base());                           // (B, V/N)
    const Tensor sums = over_devices(row_sums(powers), ReduceOp::sum);                          // (B)
    const Tensor of_labels = over_devices(take_columns(z.local(), labels_, 1), ReduceOp::sum);  // (B, 1)
    p_ = as(z, rounded(divide_rows(std::move(powers), sums)));                                  // (B, V/N)
    return Replicated(group(), loss(largest, sums, of_labels));                                 // (1)
  }
  Gradients backward(Tensor dloss) override {
    Gradients gradients;
    gradients.put(Gradients::input_grad, as(p_, logits_gradient(p_.local(), labels_, dloss)));
    return gradients;
  }

 private:
  Tensor over_devices(Tensor mine, ReduceOp op) {
    if constexpr (is_naive) return mine;
    return all_reduce(std::move(mine), op);
  }

  Sharded<1> p_;               // (B, V/N)
  std::vector<Index> labels_;  // as columns of my slice; no_slot for those that I do not have
};

}  // namespace shard::layer_cuts
