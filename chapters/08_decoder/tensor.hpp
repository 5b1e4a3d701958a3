#pragma once

///     ./chapters/run 08 -n 4 train --variant tensor
///
/// Tensor parallelism (Shoeybi et al. 2019, "Megatron-LM", section 3). Every device has all tokens. Heads,
/// hidden units and the vocabulary are divided. Each part of a block begins with weights that are cut by
/// columns and ends with weights that are cut by rows. So it needs one all-reduce forward, and one backward.
/// Builds on: 08_decoder/single.hpp.

#include "tensor_weights.hpp"
#include "vocabulary_loss.hpp"

namespace shard::decoders {

/// K: how keys and values lie (tensor_weights.hpp).
template <Layout K>
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
  /// The residual stream x is the same on every device.
  Placed forward(Tensor input) override {
    MyKept kept{.tokens = read(input, m_.vocabulary)};                // T = B S of them
    Replicated x = all_reduce(embedding(w_.embedding, kept.tokens));  // (T, D)     P → R
    forget_choices();
    for (Index b = 0; b < m_.num_blocks; ++b) {
      MyBlockKept& k = kept.blocks.emplace_back();
      accumulate(x, all_reduce(attend(b, x, kept.tokens, k)));  // (T, D)     P → R
      accumulate(x, all_reduce(think(b, x, k)));                // (T, D)     P → R
      if (device_id() == 0) note_choice(b, k.mixture.choice, kept.tokens);
    }
    kept.n = rms_norm(x, w_.final_norm, m_.epsilon, m_.how, kept.norm);  // (T, D)
    Sharded<1> z =
        scale(matmul(kept.n, transposed(w_.head(m_))), m_.how.logit_scale);  // (T, V/N)   R·S0ᵀ = S1
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
    Sharded<0> dhead = matmul(transposed(dz), kept.n);   // (V/N, D)   S1ᵀ·R = S0
    Replicated d = all_reduce(matmul(dz, w_.head(m_)));  // (T, D)     S1·S0 = P → R
    dz = Sharded<1>();
    d = norm_backward(*this, final_norm_name(), std::move(d), w_.final_norm, m_.how, kept.norm,
                      gradients);  // (T, D)
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      accumulate(d, think_backward(b, d, kept.blocks.back(), gradients));
      accumulate(d, attend_backward(b, d, kept.tokens, kept.blocks.back(), gradients));
    }
    Sharded<0> dembedding = embedding_backward(d, kept.tokens, w_.embedding);  // (V/N, D)
    put_tables(m_, std::move(dembedding), std::move(dhead), gradients);
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return trainables(m_, w_); }

 private:
  using MyBlock = TensorBlock<K>;
  using MyBlockKept = BlockKept<Replicated, Sharded<1>, K, Partial>;
  using MyKept = Kept<MyBlockKept, Replicated>;

  Partial attend(Index b, const Replicated& x, const Tokens& t, MyBlockKept& k) {
    const MyBlock& w = w_.block(b);
    k.n = rms_norm(x, w.attention_norm, m_.epsilon, m_.how, k.attention_norm);    // (T, D)
    k.q = rotary(matmul(k.n, w.query), t.sequences, t.positions, rotary_of(m_));  // (T, H d/N)   R·S1 = S1
    k.k = rotary(matmul(k.n, w.key), t.sequences, t.positions, rotary_of(m_));    // (T, G d/N)   or all
    k.v = matmul(k.n, w.value);                                                   // (T, G d/N)   or all
    const auto [keys, values, at] = seen(b, k.k, k.v, t.positions);
    k.o = attention(k.q, keys, values, t.positions, at, my_heads(m_, group(), t.sequences), k.softmax);
    return matmul(k.o, w.output);  // (T, D)   S1·S0 = P
  }
  Replicated attend_backward(Index b, const Replicated& d, const Tokens& t, MyBlockKept& k,
                             Gradients& gradients) {
    const MyBlock& w = w_.block(b);
    gradients.put(block_name(b, "output"), matmul(transposed(k.o), d));  // (H d/N, D)   S1ᵀ·R = S0
    auto heads = attention_backward(matmul(d, transposed(w.output)), k.o, k.q, k.k, k.v, t.positions,
                                    my_heads(m_, group(), t.sequences), k.softmax);
    const Sharded<1> dq = rotary_backward(std::move(heads.dq), t.sequences, t.positions, rotary_of(m_));
    const K dk = rotary_backward(of_all(*this, std::move(heads.dk)), t.sequences, t.positions, rotary_of(m_));
    const K dv = of_all(*this, std::move(heads.dv));                     // (T, G d/N)   or all
    gradients.put(block_name(b, "query"), matmul(transposed(k.n), dq));  // (D, H d/N)
    gradients.put(block_name(b, "key"), matmul(transposed(k.n), dk));    // (D, G d/N)   or all
    gradients.put(block_name(b, "value"), matmul(transposed(k.n), dv));  // (D, G d/N)   or all
    auto of_keys = matmul(dk, transposed(w.key));                        // (T, D)
    accumulate(of_keys, matmul(dv, transposed(w.value)));
    Replicated dn = joined(matmul(dq, transposed(w.query)), std::move(of_keys));  // (T, D)
    return norm_backward(*this, block_name(b, "attention_norm"), std::move(dn), w.attention_norm, m_.how,
                         k.attention_norm, gradients);
  }

  /// The gradient of n through queries, and that through keys and values.
  Replicated joined(Partial queries, Partial keys) { return all_reduce(std::move(queries) + keys); }
  Replicated joined(Partial queries, Replicated keys) { return all_reduce(std::move(queries)) + keys; }

  /// Every device chooses the same experts, and has its hidden units of each.
  Partial think(Index b, const Replicated& x, MyBlockKept& k) const {
    const MyBlock& w = w_.block(b);
    k.f = rms_norm(x, w.feed_forward_norm, m_.epsilon, m_.how, k.feed_forward_norm);        // (T, D)
    if (!m_.is_mixture()) return feed_forward(k.f, w.experts[0], m_.how, k.feed_forward);   // (T, D)   P
    ExpertChoice choice = choose_experts(matmul(k.f, w.router).local(), m_.top_k, m_.how);  // of (T, E)
    return mixture_of_experts(k.f, std::move(choice), w.experts, m_.how, k.mixture);        // (T, D)   P
  }
  Replicated think_backward(Index b, const Replicated& d, MyBlockKept& k, Gradients& gradients) {
    const MyBlock& w = w_.block(b);
    Replicated dn;
    if (m_.is_mixture()) {
      auto dy = mixture_of_experts_backward(d, w.experts, m_.how, k.mixture);
      for (std::size_t e = 0; e < dy.experts.size(); ++e)
        put_expert(m_, b, e, std::move(dy.experts[e]), gradients);
      Replicated dgates = all_reduce(std::move(dy.gates));  // (T, k)   P → R
      const Replicated dlogits(
          group(), choose_experts_backward(std::move(dgates).local(), k.mixture.choice, m_.how));  // (T, E)
      gradients.put(block_name(b, "router"), matmul(transposed(k.f), dlogits));                    // (D, E)
      dn = all_reduce(std::move(dy.n));                                                            // (T, D)
      accumulate(dn, matmul(dlogits, transposed(w.router)));
    } else {
      auto dy = feed_forward_backward(d, k.f, w.experts[0], m_.how, std::move(k.feed_forward));
      dn = all_reduce(std::move(dy.n));  // (T, D)   P → R
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
