#pragma once

/// Attention: q = x Wq, k = x Wk, v = x Wv, o = attention of each head, y = o Wo. x is (B, S, D): sequences of
/// S tokens. Sequences are free. Heads cost what a block of two matrices costs, and a sequence that is cut
/// needs the keys and values of all its tokens.

#include "attention_heads.hpp"

namespace shard::layer_cuts {

inline constexpr Index head_dim = 4;

/// (B, S, D) as a matrix (B · S, D).
inline Tensor as_matrix(Tensor t) {
  const Shape s = t.shape();
  return std::move(t).reshaped({s[0] * s[1], s[2]});
}

/// The layer, whole, with its batch cut (Sharded<0>), or with its sequences cut (Sharded<1>). Where sequences
/// are cut, keys and values are gathered, and their gradients are summed and divided again. The naive cut sees
/// the keys and values of its own tokens only.
template <Layout Rows, bool is_naive = false>
class Attention : public AttentionLayer {
  static constexpr bool cuts_sequences = std::same_as<Rows, Sharded<1>> && !is_naive;

 public:
  using AttentionLayer::AttentionLayer;
  static constexpr SourceLine shown_at = SourceLine::current();
  void load_checkpoint(const Checkpoint& c) override {
    wq_ = load_replicated(c, "wq"), wk_ = load_replicated(c, "wk");
    wv_ = load_replicated(c, "wv"), wo_ = load_replicated(c, "wo");
  }
  Placement input_layout() const override { return layout_of<Rows>(); }

  Placed forward(Tensor tokens) override {
    Rows x = input<Rows>(std::move(tokens));  // (B, S, D), or a slice: (b, s, D)
    const Shape here = x.local().shape();
    length_ = cuts_sequences ? x.global_shape()[1] : here[1];
    const Index position = std::same_as<Rows, Sharded<1>> ? place_of(x) : 0;
    x_ = as_matrix(x.local().clone());  // (b · s, D)
    like_ = std::move(x);
    const Tensor q = matmul(x_, wq_.local());            // (b · s, H d)
    const Tensor k = all_keys(matmul(x_, wk_.local()));  // (b · S, G d)
    const Tensor v = all_keys(matmul(x_, wv_.local()));  // (b · S, G d)
    o_ = attend(q, k, v,
                {here[0], here[1], length_, position, cuts_sequences ? 0 : position, head_dim, kv_heads()});
    return tokens_of(matmul(o_, wo_.local()));  // (b, s, D)
  }
  Gradients backward(Tensor dy) override {
    const Tensor d = as_matrix(std::move(dy));  // (b · s, D)
    HeadGradients heads =
        attend_backward(matmul(d, transposed(wo_.local())), wk_.local().extent(1) / head_dim);
    const Tensor dk = my_keys(std::move(heads.k)), dv = my_keys(std::move(heads.v));  // (b · s, G d)
    Gradients gradients;
    gradients.put("wq", over_rows(like_, matmul(transposed(x_), heads.q)));
    gradients.put("wk", over_rows(like_, matmul(transposed(x_), dk)));
    gradients.put("wv", over_rows(like_, matmul(transposed(x_), dv)));
    gradients.put("wo", over_rows(like_, matmul(transposed(o_), d)));
    Tensor dx = matmul(heads.q, transposed(wq_.local()));
    dx = add(std::move(dx), matmul(dk, transposed(wk_.local())));
    dx = add(std::move(dx), matmul(dv, transposed(wv_.local())));
    gradients.put(Gradients::input_grad, tokens_of(std::move(dx)));  // (b, s, D)
    return gradients;
  }

 private:
  /// Keys or values of my tokens, (b · s, w), and of all tokens of my sequences, (b · S, w).
  Tensor all_keys(Tensor mine) {
    if constexpr (!cuts_sequences) return mine;
    const Index width = mine.extent(1);
    return as_matrix(
        all_gather(std::move(mine).reshaped({like_.local().extent(0), like_.local().extent(1), width}), 1));
  }
  Tensor my_keys(Tensor all) {
    if constexpr (!cuts_sequences) return all;
    const Index width = all.extent(1);
    return as_matrix(
        reduce_scatter(std::move(all).reshaped({like_.local().extent(0), length_, width}), ReduceOp::sum, 1));
  }
  /// (b · s, D) as x lies.
  Rows tokens_of(Tensor matrix) { return as(like_, std::move(matrix).reshaped(like_.local().shape())); }
  /// The key-value head of each query head: neighbours share one.
  std::vector<Index> kv_heads() const {
    const Index heads = wq_.local().extent(1) / head_dim, shared = heads / (wk_.local().extent(1) / head_dim);
    std::vector<Index> of;
    for (Index h = 0; h < heads; ++h) of.push_back(h / shared);
    return of;
  }

  Replicated wq_, wk_, wv_, wo_;  // (D, H d), (D, G d), (D, G d), (H d, D)
  Rows like_;                     // x: (b, s, D)
  Tensor x_, o_;                  // (b · s, D), (b · s, H d)
  Index length_ = 0;              // S
};

}  // namespace shard::layer_cuts
