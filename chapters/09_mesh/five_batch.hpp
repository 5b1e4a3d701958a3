#pragma once

/// Which tokens of a batch a device has: its sequences, cut over data and within these over expert, and of
/// each sequence its positions, cut over context. (Part of five.hpp.)

#include "08_decoder/pipelined.hpp"
#include "08_decoder/ring_attention.hpp"
#include "08_decoder/sequence_cut.hpp"
#include "five_axes.hpp"

namespace shard::meshes {

/// The sequences of each device that differs on data and expert only, those along expert first.
inline std::vector<Range> sequences_of_places(Index sequences, int data_places, int expert_places) {
  std::vector<Range> all;
  for (int i = 0; i < data_places; ++i) {
    const Range outer = part(sequences, data_places, i);
    for (int e = 0; e < expert_places; ++e) {
      const Range inner = part(outer.size(), expert_places, e);
      all.push_back({outer.begin + inner.begin, outer.begin + inner.end});
    }
  }
  return all;
}

/// At most as many micro-batches as the first of these places has sequences, so that none is empty
/// everywhere.
inline Index micro_batches_of(const std::vector<Range>& sequences, Index wanted) {
  return std::clamp<Index>(wanted, 1, std::max<Index>(sequences[0].size(), 1));
}

/// A piece of a batch: tokens of this device's sequences at its positions.
struct FivePiece {
  Tokens tokens;
  KeysOnRing keys;     ///< where the keys of all devices along context stand
  Index all_rows = 0;  ///< of all devices
};

class FiveBatch {
 public:
  /// `input` (b, 2 S): this device's sequences, of `sequences` in all. `keys_before`: positions of keys that
  /// are kept from the passes before.
  FiveBatch(Mesh& mesh, Tokens input, Index sequences, SequenceCut cut, KeysOnRing keys_before)
      : expert_places_(mesh.size(experts::name)),
        place_(mesh.place(data::name) * expert_places_ + mesh.place(experts::name)),
        context_place_(mesh.place(context::name)),
        sequences_(sequences_of_places(sequences, mesh.size(data::name), expert_places_)),
        cut_(std::move(cut)),
        keys_(std::move(keys_before)),
        tokens_(input.at(cut_.places(context_place_))) {
    keys_.at.resize(cut_.runs.size());
    for (int d = 0; d < cut_.devices(); ++d)
      std::ranges::copy(cut_.positions(d), std::back_inserter(keys_.at[static_cast<std::size_t>(d)]));
  }

  const KeysOnRing& keys() const { return keys_; }
  Index micro_batches(Index wanted) const { return micro_batches_of(sequences_, wanted); }
  /// Of all tokens of the batch.
  Index all_rows() const { return sequences_.back().end * cut_.length; }

  /// Micro-batch m of M: each device cuts its own sequences.
  FivePiece piece(Index m, Index M) const {
    auto piece_of = [&](const Range& r) { return part(r.size(), static_cast<int>(M), static_cast<int>(m)); };
    FivePiece piece{some_sequences(tokens_, piece_of(mine())), keys_};
    piece.keys.sequences = piece.tokens.sequences;
    for (const Range& r : sequences_) piece.all_rows += piece_of(r).size() * cut_.length;
    return piece;
  }
  /// The gradient of a piece's losses (t, 1).
  Tensor gradient_of(const Tensor& losses, const Tokens& of, const LossGradient& loss_gradient) const {
    SequenceCut cut = cut_;
    cut.sequences = of.sequences;
    return gradient_of_losses(losses, cut, context_place_, of.first_sequence, loss_gradient);
  }

  /// The rows of the batch, B S, that this device has; and those of all devices that differ on data, context
  /// and expert only, in the order of their places on these axes.
  std::vector<Index> my_rows() const { return rows(place_, context_place_); }
  std::vector<Index> rows_of_all() const {
    std::vector<Index> all;
    const int data_places = static_cast<int>(sequences_.size()) / expert_places_;
    for (int i = 0; i < data_places; ++i)
      for (int c = 0; c < cut_.devices(); ++c)
        for (int e = 0; e < expert_places_; ++e)
          std::ranges::copy(rows(i * expert_places_ + e, c), std::back_inserter(all));
    return all;
  }

 private:
  const Range& mine() const { return sequences_[static_cast<std::size_t>(place_)]; }
  std::vector<Index> rows(int place, int context_place) const {
    SequenceCut cut = cut_;
    const Range& of_place = sequences_[static_cast<std::size_t>(place)];
    cut.sequences = of_place.size();
    std::vector<Index> rows = cut.rows_in_sequences(context_place);
    for (Index& row : rows) row += of_place.begin * cut.length;
    return rows;
  }

  int expert_places_, place_, context_place_;
  std::vector<Range> sequences_;  // of each place on data and expert
  SequenceCut cut_;
  KeysOnRing keys_;
  Tokens tokens_;  // mine
};

}  // namespace shard::meshes
