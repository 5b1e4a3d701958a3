#pragma once

/// Grouped-query attention with its query heads cut: more devices than key-value heads.

#include "attention.hpp"

namespace shard::layer_cuts {

/// Grouped-query attention on more devices than there are key-value heads: query heads are cut by themselves,
/// and every device has all of Wk and Wv and computes the key-value heads that its query heads read. Several
/// devices may compute the same one, so its gradients are addends. The naive cut takes those of one device.
template <bool is_naive>
class AttentionByQueryHeads : public AttentionLayer {
 public:
  using AttentionLayer::AttentionLayer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    const Index heads = c.shape("wq").at(1) / head_dim;
    mine_ = part(heads, num_devices(), device_id());
    shared_ = heads / (c.shape("wk").at(1) / head_dim);
    const Range columns = {mine_.begin * head_dim, mine_.end * head_dim};
    wq_ = Sharded<1>(group(), c.slice("wq", 1, columns.begin, columns.end), c.shape("wq"), columns.begin);
    wo_ = Sharded<0>(group(), c.slice("wo", 0, columns.begin, columns.end), c.shape("wo"), columns.begin);
    wk_ = load_replicated(c, "wk"), wv_ = load_replicated(c, "wv");
  }
  Placement input_layout() const override { return Placement::replicated(); }

  Placed forward(Tensor x) override {
    shape_ = x.shape();                                         // (B, S, D)
    x_ = Replicated(group(), as_matrix(std::move(x)));          // (B · S, D)
    const Sharded<1> q = matmul(x_, wq_);                       // (B · S, H d/N)   R·S1 = S1
    const Replicated k = matmul(x_, wk_), v = matmul(x_, wv_);  // (B · S, G d)
    std::vector<Index> of_query;
    for (Index h = mine_.begin; h < mine_.end; ++h) of_query.push_back(h / shared_);
    o_ = as(q, attend(q.local(), k.local(), v.local(),
                      {shape_[0], shape_[1], shape_[1], 0, 0, head_dim, of_query}));
    return Replicated(group(), all_reduce(matmul(o_, wo_)).local().clone().reshaped(shape_));  // P → R
  }
  Gradients backward(Tensor dy) override {
    const Replicated d(group(), as_matrix(std::move(dy)));  // (B · S, D)
    const Sharded<1> dout = matmul(d, transposed(wo_));     // (B · S, H d/N)
    HeadGradients heads = attend_backward(dout.local(), wk_.local().extent(1) / head_dim);
    const Sharded<1> dq = as(o_, std::move(heads.q));  // (B · S, H d/N)
    const Partial dk(group(), std::move(heads.k)),
        dv(group(), std::move(heads.v));  // (B · S, G d)  my heads' addends
    Gradients gradients;
    gradients.put("wq", matmul(transposed(x_), dq));
    gradients.put("wk", summed_over_heads(matmul(transposed(x_), dk)));  // R·P = P → R
    gradients.put("wv", summed_over_heads(matmul(transposed(x_), dv)));
    gradients.put("wo", matmul(transposed(o_), d));
    Partial dx =
        matmul(dq, transposed(wq_)) + matmul(dk, transposed(wk_));  // (B · S, D)   S1·S0 = P, P·R = P
    dx = std::move(dx) + matmul(dv, transposed(wv_));
    gradients.put(Gradients::input_grad,
                  Replicated(group(), all_reduce(std::move(dx)).local().clone().reshaped(shape_)));
    return gradients;
  }

 private:
  Replicated summed_over_heads(Partial addend) {
    if constexpr (is_naive) return Replicated(group(), addend_of(std::move(addend)));
    return all_reduce(std::move(addend));
  }

  Sharded<1> wq_;       // (D, H d/N)
  Replicated wk_, wv_;  // (D, G d)
  Sharded<0> wo_;       // (H d/N, D)
  Replicated x_;        // (B · S, D)
  Sharded<1> o_;        // (B · S, H d/N)
  Range mine_;          // my query heads
  Index shared_ = 1;    // query heads of each key-value head
  Shape shape_;
};

}  // namespace shard::layer_cuts
