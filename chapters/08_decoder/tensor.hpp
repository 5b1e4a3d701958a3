#pragma once

///     ./chapters/run 08 -n 4 train --variant tensor
///     ./chapters/run 08 -n 4 train --variant tensor --sequence-parallel yes
///
/// Tensor parallelism (Shoeybi et al. 2019, "Megatron-LM", section 3). Every device has all tokens. Heads,
/// hidden units and the vocabulary are divided. Each part of a block begins with weights that are cut by
/// columns and ends with weights that are cut by rows. So it needs one all-reduce forward, and one backward.
///
/// With sequence-parallel norms (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
/// Transformer Models", section 4.2.2), this all-reduce is a reduce-scatter and an all-gather. Between the
/// two, a device has only its rows of the residual stream and of what norms compute. The rows that it did not
/// keep are gathered again in the backward pass. This is the price for holding less.
/// Builds on: 08_decoder/single.hpp.

#include "decoder_block.hpp"
#include "tensor_weights.hpp"
#include "vocabulary_loss.hpp"

namespace shard::decoders {

/// How the work of a block is divided (decoder_block.hpp). K is the layout of keys and values
/// (tensor_weights.hpp), X that of the residual stream: Replicated, or Sharded<0>, t of the T = B S tokens,
/// where norms are sequence-parallel.
template <Layout K, Layout X>
struct DividedHeads {
  using BlockKept = decoders::BlockKept<Replicated, Sharded<1>, K, Partial, X>;

  LanguageModel& engine;
  const DecoderModel& m;

  /// ## Between the parts of a block (decoder_block.hpp)
  /// The sum of all addends, P → R; or my rows of it, P → S0.
  X sum(Partial addend, SourceLine where = SourceLine::current()) const {
    if constexpr (std::same_as<X, Replicated>)
      return engine.all_reduce(std::move(addend), where);
    else
      return engine.template reduce_scatter<0>(std::move(addend), where);
  }
  /// All rows: those that a device has, or S0 → R.
  static const Replicated& all_rows(const Replicated& x) { return x; }
  template <Is<Sharded<0>> Rows>
  Replicated all_rows(Rows&& x, SourceLine where = SourceLine::current()) const {
    return engine.all_gather(std::forward<Rows>(x), where);
  }

  /// ## Attention: my heads of all tokens
  Sharded<1> attention(const Tokens& t, BlockKept& k, Index b) const {
    const auto [keys, values, at] = engine.cache().seen(b, k.k, k.v, t.positions);
    return shard::attention(k.q, keys, values, t.positions, at, my_heads(m, engine.group(), t.sequences),
                            k.softmax);
  }
  auto attention_backward(const Sharded<1>& dout, const Tokens& t, const BlockKept& k) const {
    return shard::attention_backward(dout, k.o, k.q, k.k, k.v, t.positions,
                                     my_heads(m, engine.group(), t.sequences), k.softmax);
  }
  /// Where every device has all key-value heads, the query heads of one are on several devices: addends, P →
  /// R.
  Sharded<1> of_all(Sharded<1> dk) const { return dk; }
  Replicated of_all(Partial dk, SourceLine where = SourceLine::current()) const {
    return engine.all_reduce(std::move(dk), where);
  }
  X of_attention(const Sharded<1>& dq, const K& dk, const K& dv, const TensorBlock<K>& w) const {
    auto through_keys = matmul(for_my_rows(dk), transposed(w.key));  // (T, D)   P, or X
    accumulate(through_keys, matmul(for_my_rows(dv), transposed(w.value)));
    return joined(matmul(dq, transposed(w.query)), std::move(through_keys));
  }

  /// ## Experts: every device chooses the same, and has its hidden units of each
  decltype(auto) of_my_rows(const ExpertChoice& all, const BlockKept& k) const {
    if constexpr (std::same_as<X, Replicated>)
      return (all);
    else
      return all.of_rows({k.f.offset(), k.f.offset() + k.f.local().extent(0)});
  }

 private:
  /// The part of keys' gradients that a device needs: all rows of its heads, or its rows of all heads.
  const K& for_my_rows(const K& d) const
      requires(std::same_as<X, Replicated> || !std::same_as<K, Replicated>) {
    return d;
  }
  Sharded<0> for_my_rows(const Replicated& d) const requires(std::same_as<X, Sharded<0>>) {
    return engine.template shard<0>(d);
  }
  X joined(Partial queries, Partial keys) const { return sum(std::move(queries) + keys); }
  X joined(Partial queries, X keys) const { return sum(std::move(queries)) + keys; }
};

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
    MyKept kept{.tokens = read(input, m_.vocabulary)};           // T = B S of them
    X x = block_.sum(embedding(w_.embedding, kept.tokens.ids));  // (T, D)   P → X
    forget_choices();
    for (Index b = 0; b < m_.num_blocks; ++b) {
      MyBlockKept& k = kept.blocks.emplace_back();
      accumulate(x, block_.sum(attend(block_, w_.block(b), x, kept.tokens, k, b)));  // (T, D)   P → X
      accumulate(x, block_.sum(feed_forward_block(block_, w_.block(b), x, k)));      // (T, D)   P → X
      if (device_id() == 0) note_choice(b, k.mixture.choice, kept.tokens);
    }
    Replicated losses = losses_of(block_, *this, x, w_.final_norm, w_.head(m_), kept.tokens, kept);  // (T, 1)
    tape_.push(std::move(kept));
    return losses;
  }

  /// ## Backward
  /// The gradients of divided weights are divided like these, and need no communication.
  Gradients backward(Tensor dloss) override {
    auto [kept] = tape_.pop();
    Gradients gradients;
    const Replicated dlosses(group(), std::move(dloss));  // (T, 1)
    Sharded<0> dhead;                                     // (V/N, D)
    X d = losses_backward(block_, dlosses, w_.final_norm, w_.head(m_), kept.tokens, kept, dhead,
                          by_name(*this, m_, gradients));  // (T, D)
    for (Index b = m_.num_blocks - 1; b >= 0; --b, kept.blocks.pop_back()) {
      const MyBlock& w = w_.block(b);
      const auto put = by_name(*this, m_, gradients, b);
      accumulate(d, feed_forward_block_backward(block_, w, block_.all_rows(d), kept.blocks.back(), put));
      accumulate(d, attend_backward(block_, w, block_.all_rows(d), kept.tokens, kept.blocks.back(), put));
    }
    Sharded<0> dtable =
        embedding_backward(block_.all_rows(std::move(d)), kept.tokens.ids, w_.embedding);  // (V/N, D)
    put_tables(m_, std::move(dtable), std::move(dhead), by_name(*this, m_, gradients));
    return gradients;
  }

  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return trainables(m_, w_); }

 private:
  using MyBlock = TensorBlock<K>;
  using MyBlockKept = typename DividedHeads<K, X>::BlockKept;
  using MyKept = Kept<MyBlockKept, X>;

  DecoderModel m_;
  DividedHeads<K, X> block_{*this, m_};
  TensorWeights<K> w_;
  Tape<MyKept> tape_;
};

}  // namespace shard::decoders
