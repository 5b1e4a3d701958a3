#pragma once

///     ./chapters/run 08 -n 4 train --variant tensor
///     ./chapters/run 08 -n 4 train --variant tensor --sequence-parallel yes
///
/// Tensor parallelism (Shoeybi et al. 2019, "Megatron-LM", section 3). Every device has all tokens. Heads,
/// hidden units and the vocabulary are divided. Each part of a block begins with weights that are cut by
/// columns and ends with weights that are cut by rows. So it needs one all-reduce forward, and one backward.
///
/// With sequence-parallel norms (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
/// Transformer Models", section 4.2.2), this all-reduce is a reduce-scatter and an all-gather. Between the two,
/// a device has only its rows of the residual stream and of what norms compute. The rows that it did not keep
/// are gathered again in the backward pass. This is the price for holding less.
/// Builds on: 08_decoder/single.hpp.

#include "tensor_weights.hpp"
#include "vocabulary_loss.hpp"

namespace shard::decoders {

/// K: how keys and values lie (tensor_weights.hpp). X: how the residual stream and norms do: Replicated, or
/// Sharded<0>, t of the T = B S tokens, where norms are sequence-parallel.
template <Layout K, Layout X>
class TensorDecoder : public LanguageModel {
 public:
  TensorDecoder(Communicator& group, const DecoderModel& model) : LanguageModel(group), m_(model) {}

  /// ## What this device owns
  /// Some heads, some hidden units of each feed-forward or expert, and some rows of the vocabulary. Norms and
  /// routers are on every device.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(m_, w_, [&](const std::string& name, auto& p) { load(c, name, m_, group(), p); });
  }

  /// ## Forward
  /// The residual stream x is the same on every device, or a device has its rows of it.
  Placed forward(Tensor input) override {
    MyKept kept{.tokens = read(input, m_.vocabulary)};   // T = B S of them
    X x = summed(embedding(w_.embedding, kept.tokens.ids));  // (T, D)   P → X
    forget_choices();
    for (Index b = 0; b < m_.num_blocks; ++b) {
      MyBlockKept& k = kept.blocks.emplace_back();
      accumulate(x, summed(attend(b, x, kept.tokens, k)));  // (T, D)   P → X
      accumulate(x, summed(feed_forward_block(b, x, k)));   // (T, D)   P → X
      if (device_id() == 0) note_choice(b, k.mixture.choice, kept.tokens);
    }
    kept.n = rms_norm(x, w_.final_norm, m_.epsilon, m_.how, kept.norm);  // (T, D)
    Sharded<1> z =
        scale(matmul(whole(kept.n), transposed(w_.head(m_))), m_.how.logit_scale);  // (T, V/N)   R·S0ᵀ = S1
    show_logits(z.local(), kept.tokens, z.offset());
    Replicated losses = cross_entropy(std::move(z), kept.tokens, m_.how, kept.softmax);  // (T, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  /// The gradients of divided weights are divided like these, and need no communication.
  Gradients backward(Tensor dloss) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    const Replicated dlosses(group(), std::move(dloss));  // (T, 1)
    Sharded<1> dz =
        cross_entropy_backward(dlosses, w_.head(m_), kept.tokens, m_.how, std::move(kept.softmax));
    Sharded<0> dhead = matmul(transposed(dz), whole(std::move(kept.n)));  // (V/N, D)   S1ᵀ·R = S0
    X d = summed(matmul(dz, w_.head(m_)));                                // (T, D)     S1·S0 = P → X
    dz = Sharded<1>();
    d = norm_backward(*this, final_norm_name(), std::move(d), w_.final_norm, m_.how, kept.norm,
                      gradients);  // (T, D)
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      accumulate(d, feed_forward_block_backward(b, whole(d), kept.blocks.back(), gradients));
      accumulate(d, attend_backward(b, whole(d), kept.tokens, kept.blocks.back(), gradients));
    }
    Sharded<0> dtable = embedding_backward(whole(std::move(d)), kept.tokens.ids, w_.embedding);  // (V/N, D)
    put_tables(m_, std::move(dtable), std::move(dhead), gradients);
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return trainables(m_, w_); }

 private:
  using MyBlock = TensorBlock<K>;
  using MyBlockKept = BlockKept<Replicated, Sharded<1>, K, Partial, X>;
  using MyKept = Kept<MyBlockKept, X>;

  /// ## Between the parts
  /// The sum of all addends, P → R; or my rows of it, P → S0.
  X summed(Partial addend, SourceLine where = SourceLine::current()) {
    if constexpr (std::same_as<X, Replicated>)
      return all_reduce(std::move(addend), where);
    else
      return reduce_scatter<0>(std::move(addend), where);
  }
  /// All rows: those that a device has, or S0 → R.
  static const Replicated& whole(const Replicated& x) { return x; }
  template <detail::Is<Sharded<0>> Rows>
  Replicated whole(Rows&& x, SourceLine where = SourceLine::current()) {
    return all_gather(std::forward<Rows>(x), where);
  }
  /// What a device needs of keys' gradients for its rows: all rows of its heads, or its rows of all heads.
  const K& for_my_rows(const K& d) requires(std::same_as<X, Replicated> || !std::same_as<K, Replicated>) {
    return d;
  }
  Sharded<0> for_my_rows(const Replicated& d) requires(std::same_as<X, Sharded<0>>) { return shard<0>(d); }
  /// The gradient of n through queries, and that through keys and values.
  X joined(Partial queries, Partial keys) { return summed(std::move(queries) + keys); }
  X joined(Partial queries, X keys) { return summed(std::move(queries)) + keys; }

  Partial attend(Index b, const X& x, const Tokens& t, MyBlockKept& k) {
    const MyBlock& w = w_.block(b);
    k.n = rms_norm(x, w.attention_norm, m_.epsilon, m_.how, k.attention_norm);  // (T, D)
    const Replicated& n = whole(k.n);
    k.q = rotary(matmul(n, w.query), t.sequences, t.positions, rotary_of(m_));  // (T, H d/N)   R·S1 = S1
    k.k = rotary(matmul(n, w.key), t.sequences, t.positions, rotary_of(m_));    // (T, G d/N)   or all
    k.v = matmul(n, w.value);                                                   // (T, G d/N)   or all
    const auto [keys, values, at] = seen(b, k.k, k.v, t.positions);
    k.o = attention(k.q, keys, values, t.positions, at, my_heads(m_, group(), t.sequences), k.softmax);
    return matmul(k.o, w.output);  // (T, D)   S1·S0 = P
  }
  X attend_backward(Index b, const Replicated& d, const Tokens& t, MyBlockKept& k, Gradients& gradients) {
    const MyBlock& w = w_.block(b);
    gradients.put(block_name(b, "output"), matmul(transposed(k.o), d));  // (H d/N, D)   S1ᵀ·R = S0
    auto heads = attention_backward(matmul(d, transposed(w.output)), k.o, k.q, k.k, k.v, t.positions,
                                    my_heads(m_, group(), t.sequences), k.softmax);
    const Sharded<1> dq = rotary_backward(std::move(heads.dq), t.sequences, t.positions, rotary_of(m_));
    const K dk = rotary_backward(of_all(*this, std::move(heads.dk)), t.sequences, t.positions, rotary_of(m_));
    const K dv = of_all(*this, std::move(heads.dv));                   // (T, G d/N)   or all
    const Replicated& n = whole(std::move(k.n));                       // (T, D)
    gradients.put(block_name(b, "query"), matmul(transposed(n), dq));  // (D, H d/N)
    gradients.put(block_name(b, "key"), matmul(transposed(n), dk));    // (D, G d/N)   or all
    gradients.put(block_name(b, "value"), matmul(transposed(n), dv));  // (D, G d/N)   or all
    auto of_keys = matmul(for_my_rows(dk), transposed(w.key));         // (T, D)   P, or X
    accumulate(of_keys, matmul(for_my_rows(dv), transposed(w.value)));
    X dn = joined(matmul(dq, transposed(w.query)), std::move(of_keys));  // (T, D)
    return norm_backward(*this, block_name(b, "attention_norm"), std::move(dn), w.attention_norm, m_.how,
                         k.attention_norm, gradients);
  }

  /// Every device chooses the same experts, and has its hidden units of each.
  Partial feed_forward_block(Index b, const X& x, MyBlockKept& k) {
    const MyBlock& w = w_.block(b);
    k.f = rms_norm(x, w.feed_forward_norm, m_.epsilon, m_.how, k.feed_forward_norm);  // (T, D)
    const Replicated& f = whole(k.f);
    if (!m_.is_mixture()) return feed_forward(f, w.experts[0], m_.how, k.feed_forward);   // (T, D)   P
    ExpertChoice choice = choose_experts(matmul(f, w.router).local(), m_.top_k, m_.how);  // of (T, E)
    return mixture_of_experts(f, std::move(choice), w.experts, m_.how, k.mixture);        // (T, D)   P
  }
  X feed_forward_block_backward(Index b, const Replicated& d, MyBlockKept& k, Gradients& gradients) {
    const MyBlock& w = w_.block(b);
    X dn;  // (T, D)
    if (m_.is_mixture()) {
      auto dy = mixture_of_experts_backward(d, w.experts, m_.how, k.mixture);
      for (std::size_t e = 0; e < dy.experts.size(); ++e)
        put_expert(m_, b, e, std::move(dy.experts[e]), gradients);
      const X dlogits = logits_gradient(summed(std::move(dy.gates)), k);  // (T, E)
      gradients.put(block_name(b, "router"),
                    over_all_rows(*this, matmul(transposed(k.f), dlogits)));  // (D, E)
      dn = summed(std::move(dy.n));                                           // (T, D)   P → X
      accumulate(dn, matmul(dlogits, transposed(w.router)));
    } else {
      auto dy =
          feed_forward_backward(d, whole(std::move(k.f)), w.experts[0], m_.how, std::move(k.feed_forward));
      dn = summed(std::move(dy.n));  // (T, D)   P → X
      put_expert(m_, b, 0, std::move(dy), gradients);
    }
    return norm_backward(*this, block_name(b, "feed_forward_norm"), std::move(dn), w.feed_forward_norm,
                         m_.how, k.feed_forward_norm, gradients);
  }
  /// Of dgates (T, k): what the router's logits, (T, E), get of my rows' choices.
  X logits_gradient(X dgates, const MyBlockKept& k) {
    const ExpertChoice& all = k.mixture.choice;
    if constexpr (std::same_as<X, Replicated>) {
      return choose_experts_backward(std::move(dgates), all, m_.how);
    } else {
      const Range mine = {k.f.offset(), k.f.offset() + k.f.local().extent(0)};
      return my_rows(choose_experts_backward(std::move(dgates).local(), all.of_rows(mine), m_.how), k.f);
    }
  }

  DecoderModel m_;
  TensorWeights<K> w_;
  Tape<MyKept> tape_;
};

}  // namespace shard::decoders
