#pragma once

/// Three ways to exchange all with all.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "numbers.hpp"

namespace shard::primer {

/// ## all_to_all
inline void all_to_all(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  scene.tells("group.all_to_all_async(t, 0, 0).get()",
              "Part k of my tensor goes to device k, for every k. Read a number as (device, row): the two "
              "change places. Done twice, everything is back where it was.");
  Tensor t = numbered(group, {n, 1});  // (n, 1)
  scene.draws("before", t);
  t = group.all_to_all_async(std::move(t), 0, 0).get();  // (n, 1)
  scene.draws("after", t);
  scene.expects(t, {n, 1}, [&](Index i, Index) { return 10 * i + me; });
  scene.sends("pairwise: n-1 messages, every part but the one I keep",
              pairwise_all_to_all(slices(n, 1, n), me));
}

/// ## all_to_all along two axes
inline void all_to_all_axes(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  scene.tells("group.all_to_all_async(t, /*split_axis=*/1, /*concat_axis=*/0).get()",
              "Cut along one axis, put together along another: a matrix of which every device has rows "
              "becomes one of which every device has columns, and no device ever holds the whole.");
  Tensor t = numbered(group, {1, n});  // (1, n)  my row of an (n, n) matrix
  scene.draws("rows", t);
  t = group.all_to_all_async(std::move(t), 1, 0).get();  // (n, 1)  my column of it
  scene.draws("columns", t);
  scene.expects(t, {n, 1}, [&](Index i, Index) { return 10 * i + me; });
  scene.sends("pairwise: n-1 messages, every part but the one I keep",
              pairwise_all_to_all(slices(n, 1, n), me));
}

/// How many tokens of device `from` want the expert of device `to`: 0, 1 or 2.
inline Index tokens(int from, int to) {
  return (from + 2 * to + 1) % 3;
}

/// ## all_to_all with counts
inline void all_to_all_counts(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  scene.tells(
      "group.all_to_all_async(t, counts, 0).get()",
      "counts[k] of my rows go to device k, perhaps none. Tokens find their experts this way, and their way "
      "back by a second call: a token's first digit is its device, the second the expert that it wants.");
  std::vector<Index> counts;
  std::vector<float> mine;
  std::vector<Index> expected;
  for (int d = 0; d < n; ++d) {
    counts.push_back(tokens(me, d));
    for (Index i = 0; i < tokens(me, d); ++i) mine.push_back(static_cast<float>(10 * me + d));
    for (Index i = 0; i < tokens(d, me); ++i) expected.push_back(10 * d + me);
  }
  Tensor t = Tensor::from_host({static_cast<Index>(mine.size()), 1}, mine);  // (my tokens, 1)
  scene.writes("counts", fmt::format("{}", fmt::join(counts, " ")));
  scene.draws("before", t);
  t = group.all_to_all_async(std::move(t), counts, 0).get();  // (tokens for my expert, 1)
  scene.draws("after", t);
  scene.expects(t, {static_cast<Index>(expected.size()), 1},
                [&](Index i, Index) { return expected[static_cast<std::size_t>(i)]; });
  scene.sends("pairwise: every part but the one I keep; empty parts are not sent",
              pairwise_all_to_all(counts, me));
}

}  // namespace shard::primer
