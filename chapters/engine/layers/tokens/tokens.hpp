#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard {

/// The tokens of some sequences of one length. An activation has a row for each token: sequence by sequence,
/// and within a sequence by position.
struct Tokens {
  /// The label of a token without a prediction, in an input, as in PyTorch. Here it is no_slot.
  static constexpr Index no_label = -100;

  Index sequences = 0;
  Index length = 0;                ///< of each
  Indices ids{};                   ///< (sequences · length)
  Indices labels{};                ///< likewise: the next token, or no_slot
  std::vector<Index> positions{};  ///< (length): within a sequence, from 0
  Index first_sequence = 0;        ///< the index of the first one in the batch

  Index rows() const { return sequences * length; }
  /// Sets ids and labels, as the two parts of one list.
  void set(std::vector<Index> new_ids, const std::vector<Index>& new_labels);

  /// Reads an input (sequences, 2 · length): a row has the ids of a sequence, and then its labels.
  /// \throws Error argument for an id or a label outside the vocabulary
  static Tokens read(const Tensor& input, Index vocabulary, Index first_position = 0,
                     SourceLine where = SourceLine::current());
  /// The tokens at these places of each sequence, counted from the first one held here.
  Tokens at(const std::vector<Index>& places) const;
  /// Piece m of this number, a micro-batch: some of the sequences.
  Tokens piece(Index m, Index pieces) const;
};

/// The batch of an encoder-decoder: the encoder reads the sources, and the decoder predicts the targets.
struct SourceAndTarget {
  Tokens source;  ///< without labels
  Tokens target;

  /// Reads an input (sequences, 1 + n + 2 · length): a row has n, the n ids of a source, the ids of its
  /// target, and the target's labels. \throws Error argument for other rows, or if n differs
  static SourceAndTarget read(const Tensor& input, Index vocabulary,
                              SourceLine where = SourceLine::current());
};

/// The first tokens of a sequence to generate. In an encoder-decoder, the encoder reads a source, and these
/// tokens begin the target.
struct Prompt {
  std::vector<Index> tokens;
  std::optional<std::vector<Index>> source = std::nullopt;
};

/// The positions of `count` tokens that follow one another.
std::vector<Index> positions_from(Index first, Index count);

/// "expected tokens from 0 to 9, given 12"; empty if all are in the vocabulary.
std::string why_no_tokens(const std::vector<Index>& tokens, Index vocabulary);

/// The rows of ids or labels in a slice of the vocabulary; no_slot for those outside it.
Indices in_slice(const Indices& tokens, Range slice);

}  // namespace shard
