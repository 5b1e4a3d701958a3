#pragma once

/// What a device computes at its place on the axis pipeline: some blocks; the embedding before the first one,
/// and the loss behind the last one. The vocabulary is divided over tensor. (Part of five.hpp.)

#include "08_decoder/vocabulary_loss.hpp"
#include "five_attention.hpp"
#include "five_batch.hpp"
#include "five_experts.hpp"

namespace shard::meshes {

template <class K>
struct FiveStage {
  FiveHere here;
  Range blocks{};  ///< its own
  FiveWeights<K> w{};

  bool is_first() const { return blocks.begin == 0; }
  bool is_last() const { return blocks.end == here.m.num_blocks; }
  const Weight<S<0>>& head() const { return w.own_head.is_empty() ? w.embedding : w.own_head; }

  /// x (T, D) through the blocks. The first stage takes none, but makes it of the tokens. The last one
  /// returns the losses, (T, 1).
  Activation<R> forward(Activation<R> x, const FivePiece& piece, FiveKept<K>& kept) const {
    const DecoderModel& m = here.m;
    if (is_first()) x = embedded(piece);  // (T, D)
    for (Index b = blocks.begin; b < blocks.end; ++b) {
      const auto& block = w.blocks[static_cast<std::size_t>(b)];
      FiveBlockKept<K>& k = kept.blocks.emplace_back();
      accumulate(x, here.over_tensor(attend(here, b, block, x, piece.tokens, piece.keys, k)));  // (T, D)
      accumulate(x, here.over_tensor(think(here, block, x, k)));                                // (T, D)
      here.note_choice(b, k.choice, piece.tokens);
    }
    if (!is_last()) return x;
    kept.n = rms_norm(x, w.final_norm, m.epsilon, m.how, kept.norm);                    // (T, D)
    Activation<S<1>> z = scale(matmul(kept.n, transposed(head())), m.how.logit_scale);  // (T, V/N)
    const Index first_column = head().ranges()[0].begin;
    here.show_logits(z.local(), piece.tokens, first_column);
    Tensor losses = divided_cross_entropy(std::move(z).local(), first_column, piece.tokens, m.how,
                                          kept.softmax, here.along<tensor>());
    return Activation<R>::uneven(here.mesh(), std::move(losses), {piece.all_rows, 1});
  }

  /// d is the gradient of what `forward` returned. Adds the weights' gradients to dw. Returns the gradient of
  /// x, (T, D), unless this is the first stage.
  Activation<R> backward(Activation<R> d, const FivePiece& piece, FiveKept<K> kept,
                         FiveAddends<K>& dw) const {
    dw.blocks.resize(static_cast<std::size_t>(here.m.num_blocks));
    if (is_last()) d = loss_backward(d, piece.tokens, kept, dw);  // (T, D)
    for (Index b = blocks.end - 1; b >= blocks.begin; --b, kept.blocks.pop_back()) {
      const auto& block = w.blocks[static_cast<std::size_t>(b)];
      auto& g = dw.blocks[static_cast<std::size_t>(b)];
      g.experts.resize(static_cast<std::size_t>(here.m.experts));
      FiveBlockKept<K>& k = kept.blocks.back();
      accumulate(d, think_backward(here, block, d, k, g));
      accumulate(d, attend_backward(here, block, d, piece.tokens, piece.keys, k, g));
    }
    if (!is_first()) return d;
    accumulate(dw.embedding, table_gradient(d, piece.tokens));
    return {};
  }

 private:
  /// My rows of the vocabulary, as rows of my part of the table.
  std::vector<Index> in_table(const Tokens& t) const { return in_slice(t.ids, w.embedding.ranges()[0]); }

  /// A device along tensor has 0 for tokens that are not in its part of the table.
  Activation<R> embedded(const FivePiece& piece) const {
    Tensor rows = combine_rows(w.embedding.local(), in_table(piece.tokens), 1);
    return here.over_tensor(
        Activation<P>::uneven(here.mesh(), std::move(rows), {piece.all_rows, here.m.model_dim}));  // P → R
  }
  Addend<S<0>> table_gradient(const Activation<R>& dx, const Tokens& t) const {
    Tensor d(w.embedding.local().shape());  // (V/N, D)
    scatter_add_rows(dx.local(), in_table(t), d);
    return Addend<S<0>>::uneven(here.mesh(), std::move(d), w.embedding.global_shape());
  }
  Activation<R> loss_backward(const Activation<R>& dlosses, const Tokens& t, FiveKept<K>& kept,
                              FiveAddends<K>& dw) const {
    const DecoderModel& m = here.m;
    Activation<S<1>> dz = Activation<S<1>>::uneven(
        here.mesh(), cross_entropy_backward(dlosses.local(), t, m.how, std::move(kept.softmax)),
        {dlosses.global_shape()[0], m.vocabulary});           // (T, V/N)
    accumulate(dw.own_head, matmul(transposed(dz), kept.n));  // (V/N, D)   P over my rows
    Activation<R> d = here.over_tensor(matmul(dz, head()));   // (T, D)     S1·S0 = P → R
    dz = {};
    Addend<R> dnorm;  // (D)
    d = rms_norm_backward(std::move(d), w.final_norm, m.how, kept.norm, dnorm);
    accumulate(dw.final_norm, std::move(dnorm));
    return d;
  }
};

}  // namespace shard::meshes
