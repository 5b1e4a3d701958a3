#pragma once

/// What a device computes that has some blocks of an encoder-decoder. All tensors are Owned: a device works
/// alone on what it has.

#include <functional>

#include "t5_owned_blocks.hpp"
#include "t5_split.hpp"

namespace shard::decoders {

/// What goes from a device to the next one, and in the same form its gradient, which comes back.
struct T5Stream {
  Owned encoder;  ///< (T_e, D)   the residual stream of the encoder, or what the encoder returned
  Owned
      decoder;  ///< (T, D)     that of the decoder, once it has begun; behind the last device (T, 1), losses
};

/// One of the tables, among parameters or sums of their gradients.
template <class AnyWeights>
auto& own_table(AnyWeights& w, Table t) {
  if (t == Table::embedding) return w.embedding;
  return w.stack(t == Table::encoder_bias ? Side::encoder : Side::decoder).position_bias;
}

/// A part of the network.
struct T5Stage {
  T5Model m;
  T5Split split;
  int device;
  T5OwnedWeights w{};
  std::array<Owned, all_tables.size()> copies{};  ///< of tables that this device reads and another one owns
  std::function<void(const Tensor& logits, const Tokens&)> show_logits{};
  KeyValueCache* cache = nullptr;  ///< the engine's

  Range blocks(Side side) const { return split.blocks(side, device); }
  bool is_last() const { return device == split.last(); }
  Owned& copy(Table t) { return copies[static_cast<std::size_t>(t)]; }
  const Owned& table(Table t) const {
    const Owned& copy = copies[static_cast<std::size_t>(t)];
    return copy.is_empty() ? own_table(w, t) : copy;
  }
  const Owned& head() const { return m.is_tied ? table(Table::embedding) : w.own_head; }

  /// Through the blocks here. The device that has a stack's first block makes its stream of the tokens. What
  /// the encoder returned is kept, as keys' gradients need it, so that a copy goes on to the next device.
  T5Stream forward(T5Stream x, T5StageKept& kept) const {
    auto& [source, target, softmax] = kept;
    if (begins(target.tokens)) read_source(x.encoder, kept);
    if (!split.has(Side::decoder, device)) return x;
    source.n = std::move(x.encoder);
    read(Side::decoder, x.decoder, kept);
    if (!is_last()) return {Owned::mine(source.n.group(), source.n.local().clone()), std::move(x.decoder)};
    target.n = rms_norm(x.decoder, w.decoder.final_norm, m.epsilon, m.how, target.norm);  // (T, D)
    Owned z = scale(matmul(target.n, transposed(head())), m.how.logit_scale);             // (T, V)   O·O = O
    show_logits(z.local(), target.tokens);
    return {Owned(), cross_entropy(std::move(z), target.tokens, m.how, softmax)};  // (T, 1)
  }

  /// d is the gradient of what `forward` returned. Adds the weights' gradients to dw. Returns that of x.
  T5Stream backward(T5Stream d, T5StageKept kept, T5OwnedWeights& dw) const {
    for (Side side : {Side::encoder, Side::decoder})
      dw.stack(side).blocks.resize(static_cast<std::size_t>(m.blocks(side)));
    if (is_last()) d.decoder = loss_backward(d.decoder, kept, dw);  // (T, D)
    if (split.has(Side::decoder, device)) read_backward(Side::decoder, d.decoder, kept, d.encoder, dw);
    if (split.has_last(Side::encoder, device))
      d.encoder = norm_backward(std::move(d.encoder), w.encoder.final_norm, m, kept.encoder.norm,
                                dw.encoder.final_norm);  // (T_e, D)
    if (split.has(Side::encoder, device)) read_backward(Side::encoder, d.encoder, kept, d.encoder, dw);
    return d;
  }

 private:
  /// x, (T_e, D), through the encoder's blocks here.
  void read_source(Owned& x, T5StageKept& kept) const {
    if (split.has(Side::encoder, device)) read(Side::encoder, x, kept);
    if (split.has_last(Side::encoder, device))
      x = rms_norm(x, w.encoder.final_norm, m.epsilon, m.how, kept.encoder.norm);
  }
  /// x, (T, D), through the blocks of a stack.
  void read(Side side, Owned& x, T5StageKept& kept) const {
    auto& k = side == Side::encoder ? kept.encoder : kept.decoder;
    k.buckets = buckets_of(k.tokens.positions, all_positions(k.tokens), m.positions(side));  // (S S)
    k.bias = position_bias(table(bias_table(side)), k.buckets);                              // (S S, H)
    if (split.has_first(side, device)) x = embedding(table(Table::embedding), k.tokens);
    for (Index b = blocks(side).begin; b < blocks(side).end; ++b) {
      const T5OwnedBlock& block = w.stack(side).blocks[static_cast<std::size_t>(b)];
      auto& kb = k.blocks.emplace_back();
      accumulate(x, attend(m, block.self, x, own_tokens(m, side, k), kb.self, nullptr, *cache));
      if (side == Side::decoder)
        accumulate(x, attend(m, block.cross, x, source_tokens(m, k, kept.encoder), kb.cross, &kept.encoder.n,
                             *cache));
      accumulate(x, think(m, block, x, kb));
    }
  }
  /// Makes d, the gradient of what the blocks returned, that of what they read. `dsource` is the gradient of
  /// what the encoder returned: each block of the decoder adds to it.
  void read_backward(Side side, Owned& d, T5StageKept& kept, Owned& dsource, T5OwnedWeights& dw) const {
    auto& k = side == Side::encoder ? kept.encoder : kept.decoder;
    Tensor dbias(k.bias.local().shape());  // (S S, H)   of all blocks here
    for (Index b = blocks(side).end - 1; b >= blocks(side).begin; --b, k.blocks.pop_back()) {
      const T5OwnedBlock& block = w.stack(side).blocks[static_cast<std::size_t>(b)];
      T5OwnedBlock& g = dw.stack(side).blocks[static_cast<std::size_t>(b)];
      auto& kb = k.blocks.back();
      accumulate(d, think_backward(m, block, d, kb, g));
      if (side == Side::decoder)
        accumulate(d, attend_backward(m, block.cross, d, source_tokens(m, k, kept.encoder), kb.cross,
                                      &kept.encoder.n, dsource, nullptr, g.cross));
      accumulate(d, attend_backward(m, block.self, d, own_tokens(m, side, k), kb.self, nullptr, dsource,
                                    &dbias, g.self));
    }
    accumulate(dw.stack(side).position_bias,
               position_bias_backward(dbias, k.buckets, table(bias_table(side))));  // (buckets, H)
    if (!split.has_first(side, device)) return;
    accumulate(dw.embedding, embedding_backward(d, k.tokens, m.vocabulary));  // (V, D)
    d = Owned();
  }
  Owned loss_backward(const Owned& dlosses, T5StageKept& kept, T5OwnedWeights& dw) const {
    Owned dz =
        cross_entropy_backward(dlosses, kept.decoder.tokens, m.how, std::move(kept.softmax));    // (T, V)
    accumulate(m.is_tied ? dw.embedding : dw.own_head, matmul(transposed(dz), kept.decoder.n));  // (V, D)
    Owned d = matmul(dz, head());                                                                // (T, D)
    dz = Owned();
    return norm_backward(std::move(d), w.decoder.final_norm, m, kept.decoder.norm, dw.decoder.final_norm);
  }
};

}  // namespace shard::decoders
