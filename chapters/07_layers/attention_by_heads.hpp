#pragma once

/// Attention with its heads cut. A device computes some heads: it has the columns of Wq, Wk and Wv that make
/// them, and the rows of Wo that read them. Heads do not see one another, so the block costs what the block of
/// chapter 03 costs: a sum of y, and one of dx.

#include "attention.hpp"

namespace shard::layer_cuts {

/// The query heads of a key-value head stay together. So at most as many devices work as there are key-value
/// heads. The naive cut does not sum dx.
template <bool is_naive>
class AttentionByHeads : public AttentionLayer {
 public:
  using AttentionLayer::AttentionLayer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    const Index groups = c.shape("wk").at(1) / head_dim, all = c.shape("wq").at(1) / head_dim;
    shared_ = all / groups;
    mine_ = part(groups, num_devices(), device_id());
    wq_ = heads<1>(c, "wq", shared_), wk_ = heads<1>(c, "wk", 1);
    wv_ = heads<1>(c, "wv", 1), wo_ = heads<0>(c, "wo", shared_);
  }
  Placement input_layout() const override { return Placement::replicated(); }

  Placed forward(Tensor x) override {
    shape_ = x.shape();                                         // (B, S, D)
    x_ = Replicated(group(), as_matrix(std::move(x)));          // (B · S, D)
    const Sharded<1> q = matmul(x_, wq_);                       // (B · S, H d/N)   R·S1 = S1
    const Sharded<1> k = matmul(x_, wk_), v = matmul(x_, wv_);  // (B · S, G d/N)
    std::vector<Index> of_query;
    for (Index h = 0; h < mine_.size() * shared_; ++h) of_query.push_back(h / shared_);
    o_ = as(q, attend(q.local(), k.local(), v.local(),
                      {shape_[0], shape_[1], shape_[1], 0, 0, head_dim, of_query}));
    return tokens_of(all_reduce(matmul(o_, wo_)));  // (B, S, D)   S1·S0 = P → R
  }
  Gradients backward(Tensor dy) override {
    const Replicated d(group(), as_matrix(std::move(dy)));  // (B · S, D)
    const Sharded<1> dout = matmul(d, transposed(wo_));     // (B · S, H d/N)   R·S1 = S1
    HeadGradients heads = attend_backward(dout.local(), mine_.size());
    const Sharded<1> dq = as(o_, std::move(heads.q));
    const Sharded<1> dk = columns(std::move(heads.k)), dv = columns(std::move(heads.v));
    Gradients gradients;
    gradients.put("wq", matmul(transposed(x_), dq));
    gradients.put("wk", matmul(transposed(x_), dk));
    gradients.put("wv", matmul(transposed(x_), dv));
    gradients.put("wo", matmul(transposed(o_), d));
    Partial dx = matmul(dq, transposed(wq_)) + matmul(dk, transposed(wk_));  // (B · S, D)   S1·S0 = P
    dx = std::move(dx) + matmul(dv, transposed(wv_));
    if constexpr (is_naive)
      gradients.put(Gradients::input_grad, tokens_of(Replicated(group(), addend_of(std::move(dx)))));
    else
      gradients.put(Gradients::input_grad, tokens_of(all_reduce(std::move(dx))));  // P → R
    return gradients;
  }

 private:
  /// This device's slice of a matrix, by heads: `to_each` heads for each key-value head.
  template <int Axis>
  Sharded<Axis> heads(const Checkpoint& c, const std::string& name, Index to_each) const {
    const Index size = to_each * head_dim, begin = mine_.begin * size;
    return Sharded<Axis>(group(), c.slice(name, Axis, begin, mine_.end * size), c.shape(name), begin);
  }
  /// Gradients of my keys or values, (B · S, G d/N).
  Sharded<1> columns(Tensor t) const {
    const Shape global = {t.extent(0), wk_.global_shape()[1]};
    return Sharded<1>(group(), std::move(t), global, wk_.offset());
  }
  Replicated tokens_of(Replicated matrix) const {
    return Replicated(group(), std::move(matrix).local().reshaped(shape_));
  }

  Sharded<1> wq_, wk_, wv_;  // (D, H d/N), (D, G d/N), (D, G d/N)
  Sharded<0> wo_;            // (H d/N, D)
  Replicated x_;             // (B · S, D)
  Sharded<1> o_;             // (B · S, H d/N)
  Range mine_;               // my key-value heads
  Index shared_ = 1;         // query heads of each
  Shape shape_;
};

}  // namespace shard::layer_cuts
