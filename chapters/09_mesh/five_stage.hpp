#pragma once

/// What a device computes at its place on the axis pipeline: some blocks; the embedding before the first one,
/// and the loss behind the last one. Keys and values of its heads travel around the ring of the devices along
/// context. Tokens are sent to their experts along expert, and along no other axis. (Part of five.hpp.)

#include "engine/schedules/staged_engine.hpp"
#include "five_engine.hpp"
#include "five_experts.hpp"

namespace shard::meshes {

template <class K>
struct FiveStage {
  using Block = FiveBlock<Weight, ExpertWeight, K>;
  using BlockGradients = FiveBlock<Addend, ExpertAddend, K>;
  using BlockKept = FiveBlockKept<K>;
  using Kept = decoders::Kept<BlockKept, Activation<R>>;

  FiveEngine& engine;
  DecoderModel m;
  FiveDivision<K> parts;
  Range blocks{};  ///< its own
  FiveWeights<K> w{};

  bool is_first() const { return blocks.begin == 0; }
  bool is_last() const { return blocks.end == m.num_blocks; }
  const Weight<S<0>>& head() const { return w.own_head.is_empty() ? w.embedding : w.own_head; }

  /// x (T, D) through the blocks. The first stage takes none, but makes it of the tokens. The last one
  /// returns the losses, (T, 1).
  Activation<R> forward(Activation<R> x, const FivePiece& piece, const decoders::KeysOnRing& keys,
                        Kept& kept) const {
    if (is_first())
      x = parts.sum(embedded<Activation<P>>(w.embedding, piece.tokens, piece.all_rows));  // (T, D)
    for (Index b = blocks.begin; b < blocks.end; ++b) {
      const Block& block = w.blocks[static_cast<std::size_t>(b)];
      BlockKept& k = kept.blocks.emplace_back();
      accumulate(x, parts.sum(attend(parts, block, x, piece.tokens, k, b, keys)));
      accumulate(x, parts.sum(m.is_mixture() ? ask_experts(parts, block, x, k)
                                             : feed_forward_block(parts, block, x, k)));
      engine.note_choice(b, k.choice, piece.tokens);
    }
    if (!is_last()) return x;
    return decoders::losses_of(parts, engine, x, w.final_norm, head(), piece.tokens, kept);
  }

  /// d is the gradient of what `forward` returned. Adds the weights' gradients to dw. Returns the gradient of
  /// x, (T, D), unless this is the first stage.
  Activation<R> backward(Activation<R> d, const FivePiece& piece, const decoders::KeysOnRing& keys, Kept kept,
                         FiveAddends<K>& dw) const {
    dw.blocks.resize(static_cast<std::size_t>(m.num_blocks));
    if (is_last())
      d = decoders::losses_backward(
          parts, d, w.final_norm, head(), piece.tokens, kept, dw.own_head,
          [&](const auto&, Addend<R> sum) { accumulate(dw.final_norm, std::move(sum)); });  // (T, D)
    for (Index b = blocks.end - 1; b >= blocks.begin; --b, kept.blocks.pop_back()) {
      const Block& block = w.blocks[static_cast<std::size_t>(b)];
      BlockGradients& g = dw.blocks[static_cast<std::size_t>(b)];
      BlockKept& k = kept.blocks.back();
      const auto put = decoders::added_to(g, m);
      auto put_mine = [&](auto of_mine) { parts.add_to_mine(g.routed, std::move(of_mine)); };
      accumulate(d, m.is_mixture() ? ask_experts_backward(parts, block, d, k, put_mine, put)
                                   : feed_forward_block_backward(parts, block, d, k, put));
      accumulate(d, attend_backward(parts, block, d, piece.tokens, k, put, keys));
    }
    if (!is_first()) return d;
    accumulate(dw.embedding, table_gradient<Addend<S<0>>>(d, piece.tokens, m.vocabulary));
    return {};
  }
};

/// What a device does with the micro-batches of its sequences. It sends to the device that has the next
/// stage, and the same place on the other axes.
template <class K>
struct FivePart {
  using Value = Activation<R>;
  using Kept = typename FiveStage<K>::Kept;

  const FiveStage<K>& stage;
  FiveBatch batch;
  FiveAddends<K> addends;  ///< summed over the micro-batches, and still to be reduced

  Value input(Index) const { return {}; }
  Value forward(Index m, int, Value x, Kept& kept) const {
    return stage.forward(std::move(x), batch.piece(m), batch.keys(), kept);
  }
  Value backward(Index m, int, Value d, Kept kept) {
    return stage.backward(std::move(d), batch.piece(m), batch.keys(), std::move(kept), addends);
  }
  Value output_gradient(Index m, const Value& losses, const LossGradient& loss_gradient) const {
    return of_piece(batch.gradient_of(losses.local(), m, loss_gradient), m);
  }
  std::vector<Shape> shapes(const Message& m) const {
    return {{batch.piece(m.micro_batch).tokens.rows(), stage.m.model_dim}};
  }
  Tensor sent(Value& x, std::size_t) const { return std::move(x).local(); }
  Value value(const Message& m, std::vector<Tensor> t) const {
    return of_piece(std::move(t[0]), m.micro_batch);
  }
  /// Rows of a micro-batch, (t, D) or (t, 1).
  Value of_piece(Tensor rows, Index m) const {
    const Shape global = {batch.piece(m).all_rows, rows.extent(1)};
    return Value::uneven(stage.engine.mesh(), std::move(rows), global);
  }
};

}  // namespace shard::meshes
