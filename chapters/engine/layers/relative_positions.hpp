#pragma once

/// Relative positions (Raffel et al. 2020, section 2.1): each head of attention adds a number to a score, by
/// the distance of the key from the query. Large distances share buckets. All blocks of a stack share one
/// table of these numbers, (buckets, H).

#include "engine/layers/arithmetic.hpp"
#include "engine/layouts/layouts.hpp"

namespace shard {

struct RelativePositions {
  Index buckets = 32;
  Index max_distance = 128;  ///< from this distance on, all are in one bucket
  /// Whether half of the buckets are for keys behind the query; else such keys have the bucket of distance 0.
  bool is_bidirectional = true;
};

/// The bucket of each query and key, (s · n), in the order of the rows of a bias (AttentionHeads). Half of
/// the buckets have one small distance each. Each of the others has more distances than the one before.
std::vector<Index> buckets_of(std::span<const Index> at_q, std::span<const Index> at_k,
                              const RelativePositions& settings);

/// Layouts of a table with whole heads: on every device, on one, or divided by heads.
template <class L>
concept TableOfHeads = std::same_as<L, Replicated> || std::same_as<L, Owned> || std::same_as<L, Sharded<1>>;

/// The bias of each query and key, (s · n, H).
template <TableOfHeads L>
L position_bias(const L& table, const std::vector<Index>& buckets, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  using detail::Access;
  return Access::make<L>(table.group(), gather_rows(Access::tensor(table), buckets),
                         {static_cast<Index>(buckets.size()), table.global_shape()[1]}, Access::place(table));
}
/// The gradient of the table, (buckets, H), from the bias's, (s · n, H), for this device's heads.
template <TableOfHeads L>
L position_bias_backward(const Tensor& dbias, const std::vector<Index>& buckets, const L& table,
                         SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  Tensor d(detail::Access::tensor(table).shape());
  scatter_add_rows(dbias, buckets, d);
  return detail::relaid(std::move(d), table);
}

}  // namespace shard
