#pragma once

#include <algorithm>
#include <vector>

#include "engine/workloads/mlp/mlp.hpp"

namespace shard::fully_sharded {

/// Sizes, in elements, that this chapter's closed forms use: layers, and this device's parts of them.
struct ShardedSizes {
  const MlpSetting& s;
  Index L;  ///< layers
  Index P;  ///< elements of all weights
  Index b;  ///< my rows of the batch
  bool reduces_in_bf16;

  explicit ShardedSizes(const MlpSetting& setting, bool reduce_in_bf16 = false)
      : s(setting),
        L(s.model.num_layers),
        P(s.model.weights()),
        b(part(s.batch, s.devices, s.device).size()),
        reduces_in_bf16(reduce_in_bf16 && is_in_bf16()) {}

  /// Elements of layer l's weights: of the whole, of each device's rows, and of this device's rows.
  Index w(Index l) const { return s.model.weights(l); }
  /// Elements of layer l's weights as the third stage gathers them: in bf16, two of a row lie in one.
  bool is_in_bf16() const { return s.precision == Precision::bf16; }
  Index gathered_columns(Index l) const {
    const Index columns = s.model.width(l + 1);
    return is_in_bf16() ? (columns + 1) / 2 : columns;
  }
  Index gathered(Index l) const { return s.model.width(l) * gathered_columns(l); }
  /// This device's rows in bf16, held beside its parameters while they are gathered.
  Index rounded(Index l) const {
    return is_in_bf16() ? part(s.model.width(l), s.devices, s.device).size() * gathered_columns(l) : 0;
  }
  std::vector<Index> shards(Index l) const {
    return slices(s.model.width(l), s.model.width(l + 1), s.devices);
  }
  Index mine(Index l) const { return shards(l)[static_cast<std::size_t>(s.device)]; }
  /// This device's rows of all parameters: about P/N.
  Index mine() const {
    Index elements = 0;
    for (Index l = 0; l < L; ++l) elements += mine(l);
    return elements;
  }
  /// A reduce-scatter's buffer, which it holds beside its argument. It has the size of the largest slice.
  Index buffer(Index l) const { return s.devices == 1 ? 0 : shards(l)[0]; }

  /// What a device holds while it reduces layer l's gradient, beside its rows of earlier sums: the gradient and a ring's
  /// buffer. In bf16: the gradient and its rounded copy; that copy, whole, and the rounded rows that arrive from all
  /// devices; these and their sums.
  Index reducing(Index l) const {
    if (!reduces_in_bf16) return w(l) + buffer(l);
    const Index copy = s.model.width(l) * gathered_columns(l), arrived = s.devices * rounded(l);
    return std::max({w(l) + copy, s.devices == 1 ? 0 : copy + arrived, arrived + mine(l)});
  }

  /// The input of layer l for this many rows. For l = L, it is the output.
  Index a(Index l, Index rows) const { return rows * s.model.width(l); }
  Index a(Index l) const { return a(l, b); }
  /// All layers' inputs, which the forward pass keeps.
  Index inputs(Index rows) const {
    Index elements = 0;
    for (Index l = 0; l < L; ++l) elements += a(l, rows);
    return elements;
  }
  /// Whether dL/dx of layer l is computed.
  bool goes_on(Index l) const { return l > 0 || s.input_grad; }

  /// The operations of data parallel: three products of one size for each layer, on this device's rows.
  Index flops() const {
    Index flops = 0;
    for (Index l = 0; l < L; ++l)
      flops += (goes_on(l) ? 3 : 2) * product_flops(b, s.model.width(l), s.model.width(l + 1));
    return flops;
  }
  Traffic gather(Index l) const { return ring_all_gather(shards(l), s.device); }
  Traffic gather_factor(Index l) const {
    return ring_all_gather(slices(s.model.width(l), gathered_columns(l), s.devices), s.device);
  }
  /// Adds the reduction of layer l's gradient.
  void reduce(Index l, Costs& costs) const {
    if (reduces_in_bf16)
      costs[Collective::all_to_all] +=
          pairwise_all_to_all(slices(s.model.width(l), gathered_columns(l), s.devices), s.device);
    else
      costs[Collective::reduce_scatter] += ring_reduce_scatter(shards(l), s.device);
  }
};

}  // namespace shard::fully_sharded
