#pragma once

///     ./chapters/run 08 -n 4 train --variant tensor --sequence-parallel yes
///
/// Tensor parallelism with sequence-parallel norms (Korthikanti et al. 2022, "Reducing Activation
/// Recomputation in Large Transformer Models", section 4.2.2). An all-reduce is a reduce-scatter and an
/// all-gather. Between the two, a device has only its rows of the residual stream. It computes the norms of
/// these rows, and keeps nothing of the others for them.
/// Builds on: 08_decoder/tensor.hpp.

#include "tensor_weights.hpp"
#include "vocabulary_loss.hpp"

namespace shard::decoders {

/// K: how keys and values lie (tensor_weights.hpp).
template <Layout K>
class TensorSequenceDecoder : public LanguageModel {
 public:
  TensorSequenceDecoder(Communicator& group, const DecoderModel& model) : LanguageModel(group), m_(model) {}

  /// ## What this device owns
  /// Some heads, some hidden units of each feed-forward or expert, and some rows of the vocabulary. Norms and
  /// routers are on every device.
  void load_checkpoint(const Checkpoint& c) override {
    for_each_parameter(m_, w_, [&](const std::string& name, auto& p) { load(c, name, m_, group(), p); });
  }

  /// ## Forward
  /// x has this device's rows of the residual stream, t of the T = B S tokens. All rows are gathered before
  /// weights that are cut by columns.
  Placed forward(Tensor input) override {
    MyKept kept{.tokens = read(input, m_.vocabulary)};
    Sharded<0> x = reduce_scatter<0>(embedding(w_.embedding, kept.tokens));  // (t, D)     P → S0
    forget_choices();
    for (Index b = 0; b < m_.num_blocks; ++b) {
      MyBlockKept& k = kept.blocks.emplace_back();
      accumulate(x, reduce_scatter<0>(attend(b, x, kept.tokens, k)));  // (t, D)     P → S0
      accumulate(x, reduce_scatter<0>(think(b, x, k)));                // (t, D)     P → S0
      if (device_id() == 0) note_choice(b, k.mixture.choice, kept.tokens);
    }
    kept.n = rms_norm(x, w_.final_norm, m_.epsilon, m_.how, kept.norm);  // (t, D)
    Sharded<1> z =
        scale(matmul(all_gather(kept.n), transposed(w_.head(m_))), m_.how.logit_scale);  // (T, V/N)
    show_logits(z.local(), kept.tokens, z.offset());
    Replicated losses = cross_entropy(std::move(z), kept.tokens, m_.how, kept.softmax);  // (T, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  /// The rows that a device did not keep are gathered again. This is the price for holding less.
  Gradients backward(Tensor dloss) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    const Replicated dlosses(group(), std::move(dloss));  // (T, 1)
    Sharded<1> dz =
        cross_entropy_backward(dlosses, w_.head(m_), kept.tokens, m_.how, std::move(kept.softmax));
    Sharded<0> dhead = matmul(transposed(dz), all_gather(std::move(kept.n)));  // (V/N, D)   S1ᵀ·R = S0
    Sharded<0> d = reduce_scatter<0>(matmul(dz, w_.head(m_)));                 // (t, D)     S1·S0 = P → S0
    dz = Sharded<1>();
    d = norm_backward(*this, final_norm_name(), std::move(d), w_.final_norm, m_.how, kept.norm,
                      gradients);  // (t, D)
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      accumulate(d, think_backward(b, all_gather(d), kept.blocks.back(), gradients));
      accumulate(d, attend_backward(b, all_gather(d), kept.tokens, kept.blocks.back(), gradients));
    }
    Sharded<0> dtable = embedding_backward(all_gather(std::move(d)), kept.tokens, w_.embedding);  // (V/N, D)
    put_tables(m_, std::move(dtable), std::move(dhead), gradients);
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return trainables(m_, w_); }

 private:
  using MyBlock = TensorBlock<K>;
  using MyBlockKept = BlockKept<Replicated, Sharded<1>, K, Partial, Sharded<0>>;
  using MyKept = Kept<MyBlockKept, Sharded<0>>;

  Partial attend(Index b, const Sharded<0>& x, const Tokens& t, MyBlockKept& k) {
    const MyBlock& w = w_.block(b);
    k.n = rms_norm(x, w.attention_norm, m_.epsilon, m_.how, k.attention_norm);  // (t, D)
    const Replicated n = all_gather(k.n);                                       // (T, D)     S0 → R
    k.q = rotary(matmul(n, w.query), t.sequences, t.positions, rotary_of(m_));  // (T, H d/N)   R·S1 = S1
    k.k = rotary(matmul(n, w.key), t.sequences, t.positions, rotary_of(m_));    // (T, G d/N)   or all
    k.v = matmul(n, w.value);                                                   // (T, G d/N)   or all
    const auto [keys, values, at] = seen(b, k.k, k.v, t.positions);
    k.o = attention(k.q, keys, values, t.positions, at, my_heads(m_, group(), t.sequences), k.softmax);
    return matmul(k.o, w.output);  // (T, D)   S1·S0 = P
  }
  Sharded<0> attend_backward(Index b, const Replicated& d, const Tokens& t, MyBlockKept& k,
                             Gradients& gradients) {
    const MyBlock& w = w_.block(b);
    gradients.put(block_name(b, "output"), matmul(transposed(k.o), d));  // (H d/N, D)   S1ᵀ·R = S0
    auto heads = attention_backward(matmul(d, transposed(w.output)), k.o, k.q, k.k, k.v, t.positions,
                                    my_heads(m_, group(), t.sequences), k.softmax);
    const Sharded<1> dq = rotary_backward(std::move(heads.dq), t.sequences, t.positions, rotary_of(m_));
    const K dk = rotary_backward(of_all(*this, std::move(heads.dk)), t.sequences, t.positions, rotary_of(m_));
    const K dv = of_all(*this, std::move(heads.dv));                   // (T, G d/N)   or all
    const Replicated n = all_gather(std::move(k.n));                   // (T, D)     S0 → R
    gradients.put(block_name(b, "query"), matmul(transposed(n), dq));  // (D, H d/N)
    gradients.put(block_name(b, "key"), matmul(transposed(n), dk));    // (D, G d/N)   or all
    gradients.put(block_name(b, "value"), matmul(transposed(n), dv));  // (D, G d/N)   or all
    auto of_keys = matmul(for_my_rows(dk), transposed(w.key));         // P (T, D)   or S0 (t, D)
    accumulate(of_keys, matmul(for_my_rows(dv), transposed(w.value)));
    Sharded<0> dn = joined(matmul(dq, transposed(w.query)), std::move(of_keys));  // (t, D)
    return norm_backward(*this, block_name(b, "attention_norm"), std::move(dn), w.attention_norm, m_.how,
                         k.attention_norm, gradients);
  }

  /// What my rows of n's gradient need of that of keys or values: all rows of my heads, or my rows of all.
  const Sharded<1>& for_my_rows(const Sharded<1>& d) { return d; }
  Sharded<0> for_my_rows(const Replicated& d) { return shard<0>(d); }
  /// My rows of n's gradient: that through queries, and that through keys and values.
  Sharded<0> joined(Partial q, Partial kv) { return reduce_scatter<0>(std::move(q) + kv); }
  Sharded<0> joined(Partial q, Sharded<0> kv) { return reduce_scatter<0>(std::move(q)) + kv; }

  /// Every device chooses the same experts, and has its hidden units of each.
  Partial think(Index b, const Sharded<0>& x, MyBlockKept& k) {
    const MyBlock& w = w_.block(b);
    k.f = rms_norm(x, w.feed_forward_norm, m_.epsilon, m_.how, k.feed_forward_norm);      // (t, D)
    const Replicated f = all_gather(k.f);                                                 // (T, D)   S0 → R
    if (!m_.is_mixture()) return feed_forward(f, w.experts[0], m_.how, k.feed_forward);   // (T, D)   P
    ExpertChoice choice = choose_experts(matmul(f, w.router).local(), m_.top_k, m_.how);  // of (T, E)
    return mixture_of_experts(f, std::move(choice), w.experts, m_.how, k.mixture);        // (T, D)   P
  }
  Sharded<0> think_backward(Index b, const Replicated& d, MyBlockKept& k, Gradients& gradients) {
    const MyBlock& w = w_.block(b);
    Sharded<0> dn;
    if (m_.is_mixture()) {
      auto dy = mixture_of_experts_backward(d, w.experts, m_.how, k.mixture);
      for (std::size_t e = 0; e < dy.experts.size(); ++e)
        put_expert(m_, b, e, std::move(dy.experts[e]), gradients);
      Replicated dgates = all_reduce(std::move(dy.gates));  // (T, k)   P → R
      const Replicated all(
          group(), choose_experts_backward(std::move(dgates).local(), k.mixture.choice, m_.how));  // (T, E)
      const Sharded<0> dlogits = shard<0>(all);                                                    // (t, E)
      gradients.put(block_name(b, "router"), all_reduce(matmul(transposed(k.f), dlogits)));  // (D, E)   P → R
      dn = reduce_scatter<0>(std::move(dy.n));                                               // (t, D)
      accumulate(dn, matmul(dlogits, transposed(w.router)));
    } else {
      auto dy = feed_forward_backward(d, all_gather(std::move(k.f)), w.experts[0], m_.how,
                                      std::move(k.feed_forward));
      dn = reduce_scatter<0>(std::move(dy.n));  // (t, D)   P → S0
      put_expert(m_, b, 0, std::move(dy), gradients);
    }
    return norm_backward(*this, block_name(b, "feed_forward_norm"), std::move(dn), w.feed_forward_norm,
                         m_.how, k.feed_forward_norm, gradients);
  }

  DecoderModel m_;
  TensorWeights<K> w_;
  Tape<MyKept> tape_;
};

}  // namespace shard::decoders
