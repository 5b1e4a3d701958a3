#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard {

/// The tokens of some sequences of one length. An activation has a row for each: sequence by sequence, and in
/// a sequence by position.
struct Tokens {
  /// A label for a token of which nothing is to be predicted, as PyTorch has it.
  static constexpr Index no_label = -100;

  Index sequences = 0;
  Index length = 0;                ///< of each
  std::vector<Index> ids{};        ///< (sequences · length)
  std::vector<Index> labels{};     ///< likewise: the token that is to be predicted, or no_label
  std::vector<Index> positions{};  ///< (length): the places in a sequence, from 0
  Index first_sequence = 0;        ///< the place of the first one in the batch

  Index rows() const { return sequences * length; }

  /// From an input (sequences, 2 · length): a row has the ids of a sequence and then its labels.
  /// \throws Error argument for an id or a label outside the vocabulary
  static Tokens read(const Tensor& input, Index vocabulary, Index first_position = 0,
                     SourceLine where = SourceLine::current());
  /// These positions of each sequence, counted from its first token here.
  Tokens at(const std::vector<Index>& places) const;
  /// Piece m of so many, a micro-batch: some of the sequences.
  Tokens piece(Index m, Index pieces) const;
};

/// The batch of an encoder-decoder: the encoder reads the sources, and the decoder says the targets.
struct SourceAndTarget {
  Tokens source;  ///< without labels
  Tokens target;

  /// From an input (sequences, 1 + n + 2 · length). A row has n, the n ids of a source, the ids of its
  /// target, and the target's labels. \throws Error argument for rows that are not so, or with different n
  static SourceAndTarget read(const Tensor& input, Index vocabulary,
                              SourceLine where = SourceLine::current());
};

/// The tokens that a sequence begins with. In an encoder-decoder, the encoder reads a source, and these are
/// the target's.
struct Prompt {
  std::vector<Index> tokens;
  std::optional<std::vector<Index>> source = std::nullopt;
};

/// "expected tokens from 0 to 9, given 12". Nothing where all are in the vocabulary.
std::string why_no_tokens(const std::vector<Index>& tokens, Index vocabulary);

/// Ids or labels as rows of a slice of the vocabulary; no_slot for those that are not in it.
std::vector<Index> in_slice(const std::vector<Index>& tokens, Range slice);

}  // namespace shard
