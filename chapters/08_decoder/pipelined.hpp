#pragma once

/// What the pipelines of this chapter share: the tokens of micro-batches. Their schedule is 1F1B.

#include <numeric>

#include "engine/layers/tokens.hpp"
#include "engine/schedules/schedules.hpp"

namespace shard::decoders {

/// \name Tokens on devices that have no input
/// @{
inline Tensor labels_of(const Tokens& t) {  // (b, S)
  return Tensor::from_host({t.sequences, t.length}, std::vector<float>(t.labels.begin(), t.labels.end()));
}
/// The tokens of so many sequences, of which a device knows no more than the labels, if any.
inline Tokens tokens_of(Index sequences, Index length, const Tensor& labels) {
  Tokens t{.sequences = sequences, .length = length};
  t.positions.resize(static_cast<std::size_t>(length));
  std::iota(t.positions.begin(), t.positions.end(), Index{0});
  const std::vector<float> all = labels.to_host();
  t.labels.assign(all.begin(), all.end());
  return t;
}
/// These sequences of a batch.
inline Tokens some_sequences(const Tokens& batch, Range sequences) {
  Tokens some{.sequences = sequences.size(), .length = batch.length, .positions = batch.positions};
  some.first_sequence = batch.first_sequence + sequences.begin;
  auto copy = [&](const std::vector<Index>& from, std::vector<Index>& to) {
    if (!from.empty())
      to.assign(from.begin() + sequences.begin * batch.length, from.begin() + sequences.end * batch.length);
  };
  copy(batch.ids, some.ids);
  copy(batch.labels, some.labels);
  return some;
}
/// @}

}  // namespace shard::decoders
