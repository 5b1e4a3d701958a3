#pragma once

/// How sequences are divided over devices, in this chapter's variants that cut them: which places of every
/// sequence a device takes. Every device knows the places of all others by this rule.

#include <algorithm>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/device/layer_operations.hpp"

namespace shard::decoders {

/// Activations have a row for each token, in device order: device 0's tokens first, and for each device
/// sequence by sequence.
struct SequenceCut {
  Index sequences = 0;                        ///< B
  Index length = 0;                           ///< S
  std::vector<std::vector<Range>> runs = {};  ///< of each device: its places, as ranges that do not touch
  Index first_position = 0;                   ///< of place 0, where a sequence goes on

  /// Device i takes the i-th of N parts.
  static SequenceCut contiguous(Index sequences, Index length, int devices) {
    SequenceCut cut{sequences, length};
    for (int i = 0; i < devices; ++i) cut.add_device({part(length, devices, i)});
    return cut;
  }
  /// Device i takes the parts i and 2N−1−i of 2N: an early one and a late one. A token sees those before it,
  /// so with a contiguous cut the first device computes little in attention, and the last one much.
  static SequenceCut zigzag(Index sequences, Index length, int devices) {
    SequenceCut cut{sequences, length};
    for (int i = 0; i < devices; ++i)
      cut.add_device({part(length, 2 * devices, i), part(length, 2 * devices, 2 * devices - 1 - i)});
    return cut;
  }

  /// Gives each part to the device that is this number of places further on.
  SequenceCut turned(Index devices_on) && {
    const auto shift = static_cast<std::ptrdiff_t>(devices_on % static_cast<Index>(runs.size()));
    std::rotate(runs.begin(), runs.end() - shift, runs.end());
    return std::move(*this);
  }

  int devices() const { return static_cast<int>(runs.size()); }
  const std::vector<Range>& runs_of(int device) const { return runs[static_cast<std::size_t>(device)]; }
  /// A device's places, ascending.
  std::vector<Index> places(int device) const {
    std::vector<Index> all;
    for (const Range& run : runs_of(device))
      for (Index place = run.begin; place < run.end; ++place) all.push_back(place);
    return all;
  }
  /// Their positions in the whole sequence.
  std::vector<Index> positions(int device) const {
    std::vector<Index> all = places(device);
    for (Index& place : all) place += first_position;
    return all;
  }
  /// How many places a device takes.
  Index size(int device) const {
    Index places = 0;
    for (const Range& run : runs_of(device)) places += run.size();
    return places;
  }
  /// How many places the devices before this one take.
  Index places_before(int device) const {
    Index places = 0;
    for (int d = 0; d < device; ++d) places += size(d);
    return places;
  }
  /// B S: rows of all devices.
  Index all_rows() const { return sequences * length; }
  /// A device's rows, in device order.
  Range rows(int device) const {
    const Index before = places_before(device);
    return {sequences * before, sequences * (before + size(device))};
  }
  /// For each row of a device: its row b S + place in a tensor of whole sequences.
  std::vector<Index> rows_in_sequences(int device) const {
    std::vector<Index> rows;
    for (Index b = 0; b < sequences; ++b)
      for (Index place : places(device)) rows.push_back(b * length + place);
    return rows;
  }
  /// The same for each row of all devices, in device order.
  std::vector<Index> rows_in_sequences() const {
    std::vector<Index> rows;
    for (int d = 0; d < devices(); ++d) std::ranges::copy(rows_in_sequences(d), std::back_inserter(rows));
    return rows;
  }

 private:
  void add_device(std::initializer_list<Range> parts) {
    std::vector<Range>& mine = runs.emplace_back();
    for (const Range& r : parts) {
      if (r.size() == 0) continue;
      if (!mine.empty() && mine.back().end == r.begin)
        mine.back().end = r.end;
      else
        mine.push_back(r);
    }
  }
};

/// The gradient of a device's losses (t, 1). `loss_gradient` is called for each run of tokens, with the index
/// of its first row in the batch. `first_sequence` is the index of this cut's first sequence there.
template <class LossOfRows>
Tensor gradient_of_losses(const Tensor& losses, const SequenceCut& cut, int device, Index first_sequence,
                          const LossOfRows& loss_gradient) {
  Tensor dlosses(losses.shape());
  Index row = 0;
  for (Index b = 0; b < cut.sequences; ++b)
    for (const Range& run : cut.runs_of(device)) {
      const Tensor piece = slice(losses, 0, row, row + run.size());
      assign(Rows(dlosses, row, row + run.size()),
             loss_gradient(piece, (first_sequence + b) * cut.length + run.begin));
      row += run.size();
    }
  return dlosses;
}

/// A rule: (sequences, length, devices).
using CutSequences = SequenceCut (*)(Index, Index, int);

}  // namespace shard::decoders
