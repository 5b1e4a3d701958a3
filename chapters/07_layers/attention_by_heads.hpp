#pragma once

/// Attention with its heads cut. A device computes some heads: it has the columns of Wq, Wk and Wv that make
/// them, and the rows of Wo that read them. Heads do not see one another, so the block costs what the block
/// of chapter 03 costs: a sum of y, and one of dx.

#include "attention.hpp"

namespace shard::layer_cuts {

/// Keys is Sharded<1> where key-value heads are cut, each with the query heads that share it. So at most as
/// many devices work as there are key-value heads. The naive cut does not sum dx.
///
/// Keys is Replicated for more devices than that: query heads are cut by themselves, and every device has all
/// of Wk and Wv. Several devices may compute the same key-value head, so its gradients are addends. The naive
/// cut takes those of one device.
template <Layout Keys, bool is_naive>
class AttentionByHeads : public Layer {
  static constexpr bool cuts_keys = std::same_as<Keys, Sharded<1>>;

 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    const Index all = c.shape("wq").at(1) / head_dim, key_heads = c.shape("wk").at(1) / head_dim;
    const Index shared = all / key_heads, each = cuts_keys ? shared : 1;
    const Range mine = part(all / each, num_devices(), device_id());
    const Range queries = {mine.begin * each, mine.end * each}, keys = cuts_keys ? mine : Range{0, key_heads};
    wq_ = heads<Sharded<1>>(c, "wq", queries), wo_ = heads<Sharded<0>>(c, "wo", queries);
    wk_ = heads<Keys>(c, "wk", keys), wv_ = heads<Keys>(c, "wv", keys);
    heads_ = {0, head_dim, key_heads_of(queries, shared, keys.begin), keys.size(), {}, how()};
  }
  Placement input_layout() const override { return Placement::replicated(); }

  Placed forward(Tensor x) override {
    shape_ = x.shape();                                 // (B, S, D)
    x_ = Replicated(group(), as_matrix(std::move(x)));  // (B · S, D)
    q_ = matmul(x_, wq_);                               // (B · S, H d/N)   R·S1 = S1
    k_ = matmul(x_, wk_), v_ = matmul(x_, wv_);         // (B · S, G d/N), or all
    at_ = positions_from(0, shape_[1]), heads_.sequences = shape_[0], softmax_ = {};
    o_ = attention(q_, k_, v_, at_, at_, heads_, softmax_);  // (B · S, H d/N)
    return tokens_of(all_reduce(matmul(o_, wo_)));           // (B, S, D)   S1·S0 = P → R
  }
  Gradients backward(Tensor dy) override {
    const Replicated d(group(), as_matrix(std::move(dy)));  // (B · S, D)
    const Sharded<1> dout = matmul(d, transposed(wo_));     // (B · S, H d/N)   R·S1 = S1
    auto [dq, dk, dv] = attention_backward(dout, o_, q_, k_, v_, at_, heads_, softmax_);  // S1; like k_, or P
    Gradients gradients;
    gradients.put("wq", matmul(transposed(x_), dq));
    gradients.put("wk", over_heads(matmul(transposed(x_), dk)));  // R·S1 = S1, or R·P = P → R
    gradients.put("wv", over_heads(matmul(transposed(x_), dv)));
    gradients.put("wo", matmul(transposed(o_), d));
    Partial dx =
        matmul(dq, transposed(wq_)) + matmul(dk, transposed(wk_));  // (B · S, D)   S1·S0 = P, P·R = P
    dx = std::move(dx) + matmul(dv, transposed(wv_));
    gradients.put(Gradients::input_grad, tokens_of(summed_if(!cuts_keys || !is_naive, std::move(dx))));
    return gradients;
  }

 private:
  /// These heads' columns or rows of a matrix, or all of it.
  template <Layout L>
  L heads(const Checkpoint& c, const std::string& name, Range which) const {
    if constexpr (std::same_as<L, Replicated>)
      return load_replicated(c, name);
    else {
      constexpr int axis = axis_of<L>;
      const Index begin = which.begin * head_dim, end = which.end * head_dim;
      return L(group(), c.slice(name, axis, begin, end), c.shape(name), begin);
    }
  }
  /// The gradient of a matrix of keys through all query heads.
  Sharded<1> over_heads(Sharded<1> mine) { return mine; }
  Replicated over_heads(Partial addend) { return summed_if(!is_naive, std::move(addend)); }
  /// The sum, or the addend that a naive cut takes for it.
  Replicated summed_if(bool is_summed, Partial addend) {
    return is_summed ? all_reduce(std::move(addend)) : Replicated(group(), addend_of(std::move(addend)));
  }
  Replicated tokens_of(Replicated matrix) const {
    return Replicated(group(), std::move(matrix).local().reshaped(shape_));
  }

  Sharded<1> wq_;          // (D, H d/N)
  Keys wk_, wv_;           // (D, G d/N), or all
  Sharded<0> wo_;          // (H d/N, D)
  Replicated x_;           // (B · S, D)
  Sharded<1> q_, o_;       // (B · S, H d/N)
  Keys k_, v_;             // (B · S, G d/N), or all
  std::vector<Index> at_;  // (S)
  AttentionHeads heads_;   // mine
  OnlineSoftmax softmax_;
  Shape shape_;
};

}  // namespace shard::layer_cuts
