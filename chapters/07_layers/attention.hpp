#pragma once

/// Attention: q = x Wq, k = x Wk, v = x Wv, o = softmax(q kᵀ / √d) v for each head, y = o Wo. x is (B, S, D):
/// sequences of S tokens, each of which sees itself and those before it. engine/layers/attention.cpp computes
/// the heads. Sequences are free. Heads cost what a block of two matrices costs, and a sequence that is cut
/// needs the keys and values of all its tokens.

#include "engine/layers/attention.hpp"
#include "engine/layers/tokens/tokens.hpp"
#include "layer.hpp"

namespace shard::layer_cuts {

/// (B, S, D) as a matrix (B · S, D).
inline Tensor as_matrix(Tensor t) {
  const Shape s = t.shape();
  return std::move(t).reshaped({s[0] * s[1], s[2]});
}

/// The layer, whole, with its batch cut (Sharded<0>), or with its sequences cut (Sharded<1>). Where sequences
/// are cut, keys and values are gathered, and their gradients are summed and divided again. The naive cut
/// sees the keys and values of its own tokens only.
template <Layout Rows, bool is_naive = false>
class Attention : public Layer {
  static constexpr bool cuts_sequences = std::same_as<Rows, Sharded<1>> && !is_naive;

 public:
  using Layer::Layer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    wq_ = load_replicated(c, "wq"), wk_ = load_replicated(c, "wk");
    wv_ = load_replicated(c, "wv"), wo_ = load_replicated(c, "wo");
  }
  Placement input_layout() const override { return layout_of<Rows>(); }

  Placed forward(Tensor tokens) override {
    Rows x = input<Rows>(std::move(tokens));  // (B, S, D), or a slice: (b, s, D)
    const Index sequences = x.local().extent(0), first = std::same_as<Rows, Sharded<1>> ? place_of(x) : 0;
    const Index heads = wq_.local().extent(1) / head_dim, of_keys = wk_.local().extent(1) / head_dim;
    heads_ = {sequences, head_dim, key_heads_of({0, heads}, heads / of_keys, 0), of_keys, {}, how()};
    at_q_ = positions_from(first, x.local().extent(1));
    at_k_ = cuts_sequences ? positions_from(0, x.global_shape()[1]) : at_q_;
    x_ = as_matrix(x.local().clone());  // (b · s, D)
    like_ = std::move(x);
    q_ = matmul(x_, wq_.local());            // (b · s, H d)
    k_ = all_keys(matmul(x_, wk_.local()));  // (b · S, G d)
    v_ = all_keys(matmul(x_, wv_.local()));  // (b · S, G d)
    softmax_ = {};
    attend({q_, k_, v_, at_q_, at_k_}, heads_, softmax_);
    o_ = attended(heads_, q_.extent(0), softmax_);  // (b · s, H d)
    return tokens_of(matmul(o_, wo_.local()));      // (b, s, D)
  }
  Gradients backward(Tensor dy) override {
    const Tensor d = as_matrix(std::move(dy));  // (b · s, D)
    auto [dq, all_dk, all_dv] =
        attend_backward(matmul(d, transposed(wo_.local())), o_, {q_, k_, v_, at_q_, at_k_}, heads_, softmax_);
    const Tensor dk = my_keys(std::move(all_dk)), dv = my_keys(std::move(all_dv));  // (b · s, G d)
    Gradients gradients;
    gradients.put("wq", over_rows(like_, matmul(transposed(x_), dq)));
    gradients.put("wk", over_rows(like_, matmul(transposed(x_), dk)));
    gradients.put("wv", over_rows(like_, matmul(transposed(x_), dv)));
    gradients.put("wo", over_rows(like_, matmul(transposed(o_), d)));
    Tensor dx = matmul(dq, transposed(wq_.local()));
    dx = add(std::move(dx), matmul(dk, transposed(wk_.local())));
    dx = add(std::move(dx), matmul(dv, transposed(wv_.local())));
    gradients.put(Gradients::input_grad, tokens_of(std::move(dx)));  // (b, s, D)
    return gradients;
  }

 private:
  /// Keys or values of my tokens, (b · s, w), and of all tokens of my sequences, (b · S, w).
  Tensor all_keys(Tensor mine) {
    if constexpr (!cuts_sequences) return mine;
    return as_matrix(all_gather(by_sequence(std::move(mine), at_q_), 1));
  }
  Tensor my_keys(Tensor all) {
    if constexpr (!cuts_sequences) return all;
    return as_matrix(reduce_scatter(by_sequence(std::move(all), at_k_), ReduceOp::sum, 1));
  }
  /// The reverse of as_matrix.
  Tensor by_sequence(Tensor matrix, const std::vector<Index>& at) const {
    const Index width = matrix.extent(1);
    return std::move(matrix).reshaped({heads_.sequences, std::ssize(at), width});
  }
  /// (b · s, D) as x lies.
  Rows tokens_of(Tensor matrix) { return as(like_, std::move(matrix).reshaped(like_.local().shape())); }

  Replicated wq_, wk_, wv_, wo_;    // (D, H d), (D, G d), (D, G d), (H d, D)
  Rows like_;                       // x: (b, s, D)
  Tensor x_, q_, k_, v_, o_;        // (b · s, D), (b · s, H d), (b · S, G d), (b · S, G d), (b · s, H d)
  std::vector<Index> at_q_, at_k_;  // positions of queries (s), and of keys (S)
  AttentionHeads heads_;
  OnlineSoftmax softmax_;
};

}  // namespace shard::layer_cuts
