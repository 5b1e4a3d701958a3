#pragma once

/// What the pipelines of this chapter share: the schedule, and the tokens of micro-batches.

#include <algorithm>
#include <numeric>

#include "engine/layers/tokens.hpp"
#include "engine/schedules/schedule.hpp"

namespace shard::decoders {

/// ## The schedule
/// One forward, one backward, in turns. Before that, earlier devices go ahead with some forwards.
inline Work one_forward_one_backward(int devices, Index micro_batches) {
  Work work(static_cast<std::size_t>(devices));
  for (int d = 0; d < devices; ++d) {
    std::vector<Action>& mine = work[static_cast<std::size_t>(d)];
    const Index ahead = std::min<Index>(micro_batches, devices - d - 1);
    for (Index m = 0; m < micro_batches + ahead; ++m) {
      if (m < micro_batches) mine.push_back({Action::Kind::forward, m, d});
      if (m >= ahead) mine.push_back({Action::Kind::backward, m - ahead, d});
    }
  }
  return work;
}

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
  some.first_sequence = sequences.begin;
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
