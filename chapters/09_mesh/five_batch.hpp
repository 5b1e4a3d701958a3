#pragma once

/// Which tokens of a batch a device has: its sequences, cut over data and within these over expert, and of
/// each sequence its positions, cut over context. (Part of five.hpp.)

#include "08_decoder/ring_attention.hpp"
#include "08_decoder/sequence_cut.hpp"
#include "axes.hpp"
#include "engine/layers/tokens/tokens.hpp"

namespace shard::meshes {

/// A piece of a batch: tokens of this device's sequences at its positions.
struct FivePiece {
  Tokens tokens;
  Index all_rows = 0;  ///< of all devices
};

class FiveBatch {
 public:
  /// `input` (b, 2 S): this device's sequences, of `sequences` in all. `keys_before`: positions of keys that
  /// are kept from the passes before. At most `wanted` micro-batches.
  FiveBatch(Mesh& mesh, Tokens input, Index sequences, decoders::SequenceCut cut,
            decoders::KeysOnRing keys_before, Index wanted)
      : expert_places_(mesh.size(experts::name)),
        place_(mesh.place(data::name) * expert_places_ + mesh.place(experts::name)),
        context_place_(mesh.place(context::name)),
        cut_(std::move(cut)),
        keys_(std::move(keys_before).with(cut_)) {
    for (int i = 0; i < mesh.size(data::name); ++i)
      for (int e = 0; e < expert_places_; ++e) {
        const Range outer = part(sequences, mesh.size(data::name), i);
        const Range inner = part(outer.size(), expert_places_, e);
        sequences_.push_back({outer.begin + inner.begin, outer.begin + inner.end});
      }
    const Tokens mine = input.at(cut_.places(context_place_));
    const Index micro_batches = std::clamp<Index>(wanted, 1, std::max<Index>(sequences_[0].size(), 1));
    for (Index m = 0; m < micro_batches; ++m) {
      Index all_rows = 0;
      for (const Range& r : sequences_)
        all_rows += part(r.size(), static_cast<int>(micro_batches), static_cast<int>(m)).size() * cut_.length;
      pieces_.push_back({mine.piece(m, micro_batches), all_rows});
    }
  }

  /// The positions of the keys of each device along context.
  const decoders::KeysOnRing& keys() const { return keys_; }
  /// No more than the first of the places on data and expert has sequences, so that none is empty everywhere.
  Index micro_batches() const { return std::ssize(pieces_); }
  /// Of all tokens of the batch.
  Index all_rows() const { return sequences_.back().end * cut_.length; }

  /// Micro-batch m: each device cuts its own sequences.
  const FivePiece& piece(Index m) const { return pieces_[static_cast<std::size_t>(m)]; }
  /// The gradient of a piece's losses (t, 1).
  Tensor gradient_of(const Tensor& losses, Index m, const LossGradient& loss_gradient) const {
    const Tokens& of = piece(m).tokens;
    decoders::SequenceCut cut = cut_;
    cut.sequences = of.sequences;
    return gradient_of_losses(losses, cut, context_place_, of.first_sequence, loss_gradient);
  }

  /// The rows of the batch, B S, that this device has; and those of all devices that differ on data, context
  /// and expert only, in the order of their places on these axes.
  std::vector<Index> my_rows() const { return rows(place_, context_place_); }
  std::vector<Index> rows_of_all() const {
    std::vector<Index> all;
    for (int first = 0; first < std::ssize(sequences_); first += expert_places_)
      for (int c = 0; c < cut_.devices(); ++c)
        for (int e = 0; e < expert_places_; ++e)
          std::ranges::copy(rows(first + e, c), std::back_inserter(all));
    return all;
  }

 private:
  std::vector<Index> rows(int place, int context_place) const {
    decoders::SequenceCut cut = cut_;
    const Range& of_place = sequences_[static_cast<std::size_t>(place)];
    cut.sequences = of_place.size();
    std::vector<Index> rows = cut.rows_in_sequences(context_place);
    for (Index& row : rows) row += of_place.begin * cut.length;
    return rows;
  }

  int expert_places_, place_, context_place_;
  std::vector<Range> sequences_;  // of each place on data and expert, those along expert first
  decoders::SequenceCut cut_;
  decoders::KeysOnRing keys_;
  std::vector<FivePiece> pieces_;  // of my tokens
};

}  // namespace shard::meshes
