#pragma once

/// The ring all-reduce step by step, slices that differ in size, a group split in two, and three ways to
/// exchange all with all.

#include <fmt/ranges.h>

#include "scenes.hpp"

namespace shard::primer {

/// Rows one below the other: (rows, 1).
inline Tensor stacked(const std::vector<Tensor>& rows) {
  std::vector<const Tensor*> parts;
  for (const Tensor& row : rows) parts.push_back(&row);
  return concatenate(parts, 0);
}

/// ## The ring, step by step
/// What all_reduce does inside, by hand. In every step chunk me - step leaves to the right, and the chunk
/// before it comes from the left: n-1 steps that add, n-1 that replace.
inline void ring(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  scene.tells(
      "2(n-1) times   group.send_async(chunk, incoming, right).wait()",
      "What all_reduce does inside, by hand; a chunk is a row here, and → marks the one that has just come. "
      "Reduce: each device sends a chunk to its right neighbour, which adds its own addend; after n-1 steps "
      "chunk d is complete on device d. Gather: complete chunks go around once.");
  std::vector<Tensor> chunks;  // n of (1, 1)
  for (int k = 0; k < n; ++k) chunks.push_back(slice(addends(group, n), 0, k, k + 1));
  auto place = [&](int k) { return static_cast<std::size_t>((k + 2 * n) % n); };
  scene.draws("before", stacked(chunks), Ink::addends, /*arrived: none*/ n);
  for (int step = 1; step <= 2 * (n - 1); ++step) {
    const bool reduces = step < n;
    const std::size_t coming = place(me - step - 1);
    Tensor incoming({1, 1});
    group.send_async(chunks[place(me - step)], incoming, (me + 1) % n).wait();
    chunks[coming] = reduces ? add(std::move(incoming), chunks[coming]) : std::move(incoming);
    scene.draws(reduces ? fmt::format("reduce {}", step) : fmt::format("gather {}", step - n + 1),
                stacked(chunks), Ink::addends, static_cast<Index>(coming));
  }
  scene.sends("the closed form of all_reduce; and its result, bit for bit", ring_all_reduce(n, n, me));
  const Tensor at_once = group.all_reduce_async(addends(group, n), ReduceOp::sum).get();  // (n, 1)
  scene.expects(stacked(chunks), {n, 1}, [values = at_once.to_host()](Index i, Index) {
    return static_cast<Index>(values[static_cast<std::size_t>(i)]);
  });
}

/// ## Slices that differ in size
/// n + 1 rows do not divide by n. all_reduce in its two halves.
inline void uneven(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  const Index rows = n + 1;
  scene.tells(
      "group.reduce_scatter_async(t, ReduceOp::sum, 0).get() then group.all_gather_async(t, 0).get()",
      fmt::format(
          "Sizes need not divide: {} rows here, n = {}. part(size, n, k) is the one rule that cuts: the "
          "first (size mod n) devices get one more. A device may own nothing; nothing is padded.",
          rows, n));
  auto cut = [&](Index size) {
    Range r = part(size, n, me);
    return fmt::format("[{}, {})", r.begin, r.end);
  };
  scene.writes(fmt::format("part({},{},k)", n - 1, n), cut(n - 1));
  scene.writes(fmt::format("part({},{},k)", rows, n), cut(rows));
  Tensor t = addends(group, rows);  // (n+1, 1)
  scene.draws("before", t, Ink::addends);
  // (2, 1) on device 0, (1, 1) elsewhere
  t = group.reduce_scatter_async(std::move(t), ReduceOp::sum, 0).get();
  scene.draws("scattered", t, Ink::addends);
  t = group.all_gather_async(std::move(t), 0).get();  // (n+1, 1)
  scene.draws("gathered", t, Ink::addends);
  scene.expects(t, {rows, 1}, [&](Index i, Index) { return sum_of_addends(i, n, n); });
  const std::vector<Index> all_slices = slices(rows, 1, n);
  scene.sends("ring, twice: every slice but mine, then every slice but my right neighbour's",
              ring_reduce_scatter(all_slices, me) + ring_all_gather(all_slices, me));
}

/// ## split
/// Two groups of devices out of one, and a collective in each.
inline void split(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  scene.tells(
      "half = group.split(/*color=*/me % 2, /*key=*/me) then half->all_reduce_async(t, ReduceOp::sum).get()",
      "Devices that pass the same color form a group of their own, in the order of their keys: here the even "
      "devices one, the odd devices the other. In its group a device has a new number, from 0 on. Each group "
      "sums its own addends; the other group does not take part.");
  const std::unique_ptr<Communicator> half = group.split(me % 2, me);
  scene.writes("group", fmt::format("{{{}}}", fmt::join(half->members(), ", ")));
  scene.writes("new number", fmt::to_string(half->device_id()));
  Tensor t = addends(group, n);  // (n, 1)
  scene.draws("before", t, Ink::addends);
  t = half->all_reduce_async(std::move(t), ReduceOp::sum).get();  // (n, 1)
  scene.draws("after", t, Ink::addends);
  scene.expects(t, {n, 1}, [&](Index i, Index) {
    Index sum = 0;
    for (int d = me % 2; d < n; d += 2) sum += addend(i, d, n);
    return sum;
  });
  scene.sends("ring of the p devices of a group: 2(p-1) messages, in all 2(p-1)/p of the tensor",
              ring_all_reduce(n, (n + 1 - me % 2) / 2, me / 2));
}

/// ## all_to_all
inline void all_to_all(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  scene.tells("group.all_to_all_async(t, 0, 0).get()",
              "Part k of my tensor goes to device k, for every k. Read a number as (device, row): the two "
              "change places. "
              "Done twice, everything is back where it was.");
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
              "becomes one of "
              "which every device has columns, and no device ever holds the whole.");
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
  scene.tells("group.all_to_all_async(t, counts, 0).get()",
              "counts[k] of my rows go to device k, perhaps none. Tokens find their experts this way, and "
              "their way back "
              "by a second call: a token's first digit is its device, the second the expert that it wants.");
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
