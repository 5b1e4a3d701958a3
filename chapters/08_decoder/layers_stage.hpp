#pragma once

/// What a device computes that has some of the blocks: the embedding with the first ones, the loss with the
/// last ones. All tensors are Owned: a device works alone on what it has.

#include <functional>

#include "pipelined.hpp"
#include "whole_rows.hpp"

namespace shard::decoders {

/// All parameters, each on its device. The last device's copy of a table that is used twice is `own_head`.
using OwnedWeights = Weights<WeightsFor<Owned>, Owned, Owned>;
using StageKept = Kept<KeptFor<Owned>, Owned>;

/// A part of the network.
struct Stage {
  DecoderModel m;
  Range blocks;  ///< its own
  OwnedWeights w{};
  std::function<void(const Tensor& logits, const Tokens&)> show_logits{};
  std::function<void(Index block, const ExpertChoice&, const Tokens&)> note_choice{};
  KeyValueCache* cache = nullptr;  ///< the engine's

  bool is_first() const { return blocks.begin == 0; }
  bool is_last() const { return blocks.end == m.num_blocks; }
  const Owned& head() const { return w.own_head.is_empty() ? w.embedding : w.own_head; }

  /// x (T, D) through the blocks. The first stage takes none, but makes it of the tokens. The last one returns
  /// the losses, (T, 1).
  Owned forward(Owned x, StageKept& kept) const {
    if (is_first()) x = embedding(w.embedding, kept.tokens);  // (T, D)
    for (Index b = blocks.begin; b < blocks.end; ++b) {
      const WeightsFor<Owned>& block = w.blocks[static_cast<std::size_t>(b)];
      KeptFor<Owned>& k = kept.blocks.emplace_back();
      accumulate(x, attend(m, block, x, kept.tokens, k, *cache, b));
      accumulate(x, think(m, block, x, k));
      note_choice(b, k.mixture.choice, kept.tokens);
    }
    if (!is_last()) return x;
    kept.n = rms_norm(x, w.final_norm, m.epsilon, m.how, kept.norm);         // (T, D)
    Owned z = scale(matmul(kept.n, transposed(head())), m.how.logit_scale);  // (T, V)   O·O = O
    show_logits(z.local(), kept.tokens);
    return cross_entropy(std::move(z), kept.tokens, m.how, kept.softmax);  // (T, 1)
  }

  /// d is the gradient of what `forward` returned. Adds the weights' gradients to dw. Returns the gradient of
  /// x, (T, D), unless this is the first stage.
  Owned backward(Owned d, StageKept kept, OwnedWeights& dw) const {
    dw.blocks.resize(static_cast<std::size_t>(m.num_blocks));
    if (is_last()) d = loss_backward(d, kept, dw);  // (T, D)
    for (Index b = blocks.end - 1; b >= blocks.begin; --b, kept.blocks.pop_back()) {
      const WeightsFor<Owned>& block = w.blocks[static_cast<std::size_t>(b)];
      GradientsFor<Owned> g;
      accumulate(d, think_backward(m, block, d, kept.blocks.back(), g));
      accumulate(d, attend_backward(m, block, d, kept.tokens, kept.blocks.back(), g));
      std::vector<Owned*> addends;
      for_each_parameter(m, b, g, [&](const std::string&, Owned& p) { addends.push_back(&p); });
      auto next = addends.begin();
      for_each_parameter(m, b, dw.blocks[static_cast<std::size_t>(b)],
                         [&](const std::string&, Owned& sum) { accumulate(sum, std::move(**next++)); });
    }
    if (!is_first()) return d;
    accumulate(dw.embedding, embedding_backward(d, kept.tokens, m.vocabulary));  // (V, D)
    return {};
  }

 private:
  Owned loss_backward(const Owned& dlosses, StageKept& kept, OwnedWeights& dw) const {
    Owned dz = cross_entropy_backward(dlosses, kept.tokens, m.how, std::move(kept.softmax));  // (T, V)
    accumulate(dw.own_head, matmul(transposed(dz), kept.n));                                  // (V, D)
    Owned d = matmul(dz, head());                                                             // (T, D)
    dz = Owned();
    Owned dnorm;                                                                 // (D)
    d = rms_norm_backward(std::move(d), w.final_norm, m.how, kept.norm, dnorm);  // (T, D)
    accumulate(dw.final_norm, std::move(dnorm));
    return d;
  }
};

}  // namespace shard::decoders
