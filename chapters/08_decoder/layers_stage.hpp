#pragma once

/// What a device computes that has some of the blocks: the embedding with the first ones, the loss with the
/// last ones. All tensors are Owned: a device works alone on what it has.

#include "engine/schedules/conveyor.hpp"
#include "engine/schedules/staged_engine.hpp"
#include "layers_split.hpp"
#include "vocabulary_loss.hpp"
#include "whole_rows.hpp"

namespace shard::decoders {

/// All parameters, each on its device. The last device's copy of a table that is used twice is `own_head`.
using OwnedWeights = Weights<WeightsFor<Owned>, Owned, Owned>;
using StageKept = Kept<KeptFor<Owned>, Owned>;

/// A part of the network.
struct Stage {
  LanguageModel& engine;
  DecoderModel m;
  Range blocks;  ///< its own
  OwnedWeights w{};

  bool is_first() const { return blocks.begin == 0; }
  bool is_last() const { return blocks.end == m.num_blocks; }
  const Owned& head() const { return w.own_head.is_empty() ? w.embedding : w.own_head; }

  /// x (T, D) through the blocks. The first stage takes none, but makes it of the tokens. The last one
  /// returns the losses, (T, 1).
  Owned forward(Owned x, StageKept& kept) const {
    const OnWholeRows<Owned> block{m};
    if (is_first()) x = embedding(w.embedding, kept.tokens.ids);  // (T, D)
    for (Index b = blocks.begin; b < blocks.end; ++b) {
      KeptFor<Owned>& k = kept.blocks.emplace_back();
      accumulate(x, attend(block, w.block(b), x, kept.tokens, k, engine.cache(), b));
      accumulate(x, feed_forward_block(block, w.block(b), x, k));
      engine.note_choice(b, k.mixture.choice, kept.tokens);
    }
    return is_last() ? losses_of(block, engine, x, w.final_norm, head(), kept.tokens, kept) : std::move(x);
  }

  /// d is the gradient of what `forward` returned. Adds up the weights' gradients. Returns the gradient of x,
  /// (T, D), unless this is the first stage.
  Owned backward(Owned d, StageKept kept, OwnedSums& sums) const {
    const OnWholeRows<Owned> block{m};
    auto add = [&](const std::string& name, Owned& addend) { accumulate(sums[name], std::move(addend)); };
    auto put = [&](const std::string& name, Owned addend) { add(name, addend); };
    if (is_last())
      d = losses_backward(block, d, w.final_norm, head(), kept.tokens, kept, sums[head_name()],
                          put);  // (T, D)
    for (Index b = blocks.end - 1; b >= blocks.begin; --b, kept.blocks.pop_back()) {
      GradientsFor<Owned> g;
      const auto put_g = added_to(g, m);
      accumulate(d, feed_forward_block_backward(block, w.block(b), d, kept.blocks.back(), put_g));
      accumulate(d, attend_backward(block, w.block(b), d, kept.tokens, kept.blocks.back(), put_g));
      for_each_parameter(m, b, g, add);
    }
    if (!is_first()) return d;
    accumulate(sums[embedding_name()], embedding_backward(d, kept.tokens.ids, m.vocabulary));  // (V, D)
    return {};
  }
};

/// How a stage works on the micro-batches of a batch (StageWorker). The first stage needs ids, the last one
/// labels.
struct StagePart {
  using Value = Owned;
  using Kept = StageKept;

  Communicator& group;
  const Stage& stage;
  Tokens batch;
  Index micro_batches;
  OwnedSums sums{};

  Owned input(Index) const { return {}; }
  Owned forward(Index m, int, Owned x, StageKept& kept) const {
    kept.tokens = batch.piece(m, micro_batches);
    return stage.forward(std::move(x), kept);  // (t, D) or (t, 1)
  }
  Owned backward(Index, int, Owned d, StageKept kept) {
    return stage.backward(std::move(d), std::move(kept), sums);  // (t, D)
  }
  Owned output_gradient(Index m, const Owned& losses, const LossGradient& loss_gradient) const {
    const Index first_row = batch.piece(m, micro_batches).first_sequence * batch.length;
    return of(loss_gradient(losses.local(), first_row));  // (t, 1)
  }
  std::vector<Shape> shapes(const Message& m) const {
    return {{batch.piece(m.micro_batch, micro_batches).rows(), stage.m.model_dim}};  // (t, D)
  }
  Tensor sent(Owned& x, std::size_t) const { return std::move(x).local(); }
  Owned value(const Message&, std::vector<Tensor> t) const { return of(std::move(t[0])); }
  Owned of(Tensor t) const { return Owned::mine(group, std::move(t)); }
};

/// \name Tokens on devices that have no input
/// @{
inline Tensor labels_of(const Tokens& t) {  // (b, S)
  return Tensor::from_host({t.sequences, t.length}, std::vector<float>(t.labels.begin(), t.labels.end()));
}
/// The tokens of some sequences, of which a device knows no more than the labels, if any.
inline Tokens tokens_of(Index sequences, Index length, const Tensor& labels) {
  const std::vector<float> all = labels.to_host();
  Tokens tokens{.sequences = sequences, .length = length, .positions = positions_from(0, length)};
  tokens.set({}, {all.begin(), all.end()});
  return tokens;
}
/// @}

/// \name Inference: requests that follow one another from device to device
/// An activation is (b, S, D) on its way, so that each device knows its sequences; an empty one marks the
/// end. Labels go from the first device to the last.
/// @{
struct Request {
  Tokens tokens;
  Owned x;  ///< (T, D); the first stage makes it of the tokens
};
/// The next request here. After the last one, tells the next device and returns nothing.
inline std::optional<Request> next_request(Communicator& group, const Stage& stage, InputStream& input,
                                           Conveyor& conveyor) {
  if (stage.is_first()) {
    if (const std::optional<Tensor> rows = input.next())
      return Request{Tokens::read(*rows, stage.m.vocabulary), Owned()};
  } else if (Tensor x = conveyor.take_from(group.device_id() - 1); x.size() > 0) {  // (b, S, D)
    Tensor labels = stage.is_last() ? conveyor.take_from(0) : Tensor();
    Tokens tokens = tokens_of(x.extent(0), x.extent(1), labels);
    x = std::move(x).reshaped({tokens.rows(), stage.m.model_dim});
    return Request{std::move(tokens), Owned::mine(group, std::move(x))};
  }
  if (!stage.is_last()) conveyor.pass_on(group.device_id() + 1, Tensor());
  return std::nullopt;
}
/// Sends what a stage has made to the next one; or the losses, (T, 1), to device 0.
inline void pass_on(Communicator& group, const Stage& stage, const Tokens& tokens, Owned x,
                    Conveyor& conveyor) {
  Tensor out = std::move(x).local();
  if (stage.is_last()) return conveyor.pass_on(0, std::move(out));
  out = std::move(out).reshaped({tokens.sequences, tokens.length, stage.m.model_dim});
  conveyor.pass_on(group.device_id() + 1, std::move(out));
  if (stage.is_first()) conveyor.pass_on(group.num_devices() - 1, labels_of(tokens));
}
/// @}

}  // namespace shard::decoders
