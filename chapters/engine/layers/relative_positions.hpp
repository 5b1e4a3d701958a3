#pragma once

/// Relative positions (Raffel et al. 2020, section 2.1): each head of attention adds a number to a score, by
/// the distance of the key from the query. Large distances share buckets. All blocks of a stack share one
/// table of these numbers, (buckets, H). The bias of all queries and keys is an embedding: of each bucket its
/// row.

#include <span>

#include "engine/device/device.hpp"

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

}  // namespace shard
