#pragma once

/// The ring all-reduce: step by step, and with slices that differ in size.

#include <fmt/format.h>

#include <functional>

#include "numbers.hpp"

namespace shard::primer {

/// Rows one below the other: (rows, 1).
inline Tensor stacked(const std::vector<Tensor>& rows) {
  std::vector<const Tensor*> parts;
  for (const Tensor& row : rows) parts.push_back(&row);
  return concatenate(parts, 0);
}

/// Called after a step: which chunk has just come.
using Arrival = std::function<void(int step, std::size_t chunk)>;

/// ## The ring, step by step
/// What all_reduce does inside, by hand: n chunks of each device become n sums. In every step chunk me - step
/// leaves to the right, and the chunk before it comes from the left: n-1 steps that add, n-1 that replace. Chunks
/// may differ in size, or be empty.
inline void go_around(Communicator& group, std::vector<Tensor>& chunks, const Arrival& arrived) {
  const int n = group.num_devices(), me = group.device_id();
  auto place = [&](int k) { return static_cast<std::size_t>((k + 2 * n) % n); };
  for (int step = 1; step <= 2 * (n - 1); ++step) {
    const bool reduces = step < n;
    const std::size_t coming = place(me - step - 1);
    Tensor incoming(chunks[coming].shape());
    group.send_async(chunks[place(me - step)], incoming, (me + 1) % n).wait();
    chunks[coming] = reduces ? add(std::move(incoming), chunks[coming]) : std::move(incoming);
    arrived(step, coming);
  }
}

/// The ring with chunks of 0, 1, ... n-1 rows.
inline void expect_of_other_sizes(Communicator& group, Scene& scene) {
  const int n = group.num_devices();
  std::vector<Tensor> chunks;
  for (int k = 0; k < n; ++k) chunks.push_back(slice(addends(group, n), 0, 0, k));  // (k, 1)
  go_around(group, chunks, [](int, std::size_t) {});
  for (int k = 0; k < n; ++k)
    scene.expects(
        chunks[static_cast<std::size_t>(k)], {k, 1}, [&](Index i, Index) { return sum_of_addends(i, n, n); },
        [=](Index, Index) { return fmt::format(": chunk {}, where chunk k has k rows", k); });
}

inline void ring(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  scene.tells(
      "2(n-1) times   group.send_async(chunk, incoming, right).wait()",
      "What all_reduce does inside, by hand; a chunk is a row here, and → marks the one that has just come. "
      "Reduce: each device sends a chunk to its right neighbour, which adds its own addend; after n-1 steps "
      "chunk d is complete on device d. Gather: complete chunks go around once.");
  std::vector<Tensor> chunks;  // n of (1, 1)
  for (int k = 0; k < n; ++k) chunks.push_back(slice(addends(group, n), 0, k, k + 1));
  scene.draws("before", stacked(chunks), Ink::addends, /*arrived: none*/ n);
  std::vector<float> came, counted;
  Tensor mine;  // (1, 1) my chunk after n-1 steps
  go_around(group, chunks, [&](int step, std::size_t coming) {
    came.push_back(static_cast<float>(coming));
    counted.push_back(static_cast<float>(step));
    if (step == n - 1) mine = chunks[static_cast<std::size_t>(me)].clone();
    scene.draws(step < n ? fmt::format("reduce {}", step) : fmt::format("gather {}", step - n + 1),
                stacked(chunks), Ink::addends, static_cast<Index>(coming));
  });
  scene.sends("the closed form of all_reduce; and its result, bit for bit", ring_all_reduce(n, n, me));
  const Tensor at_once = group.all_reduce_async(addends(group, n), ReduceOp::sum).get();  // (n, 1)
  scene.expects(
      stacked(chunks), {n, 1},
      [values = at_once.to_host()](Index i, Index) {
        return static_cast<Index>(values[static_cast<std::size_t>(i)]);
      },
      [n](Index i, Index given) { return said_of_sum(i, given, n); });
  if (n == 1) return;
  const Index steps = 2 * (n - 1);
  scene.expects(
      Tensor::from_host({static_cast<Index>(came.size()), 1}, came), {steps, 1},
      [&](Index i, Index) { return (me - i - 2 + 2 * n) % n; },
      [](Index i, Index) { return fmt::format(": the chunk that arrived in step {}", i + 1); });
  scene.expects(
      Tensor::from_host({static_cast<Index>(counted.size()), 1}, counted), {steps, 1},
      [](Index i, Index) { return i + 1; },
      [](Index, Index) { return ": the number of the step, which counts from 1"; });
  scene.expects(
      mine, {1, 1}, [&](Index, Index) { return sum_of_addends(me, n, n); },
      [&](Index, Index) { return fmt::format(": chunk {} after {} steps", me, n - 1); });
  if (scene.is_right_everywhere()) expect_of_other_sizes(group, scene);
}

/// ## Slices that differ in size
/// n + 1 rows do not divide by n. all_reduce in its two halves.
inline void uneven(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  const Index rows = n + 1;
  scene.tells(
      "group.reduce_scatter_async(t, ReduceOp::sum, 0).get() then group.all_gather_async(t, 0).get()",
      fmt::format("Sizes need not divide: {} rows here, n = {}. part(size, n, k) is the one rule that cuts: "
                  "the first (size mod n) devices get one more. A device may own nothing; nothing is padded.",
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

}  // namespace shard::primer
