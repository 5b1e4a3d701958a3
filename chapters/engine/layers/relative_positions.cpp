#include "engine/layers/relative_positions.hpp"

#include <algorithm>
#include <cmath>

namespace shard {

namespace {

/// The bucket of a distance of 0 or more. Computed in float32, as in the training of the published networks.
Index bucket_of(Index distance, Index buckets, Index max_distance) {
  const Index exact = buckets / 2;
  if (distance < exact) return distance;
  const float far = std::log(static_cast<float>(distance) / static_cast<float>(exact));
  const auto farthest =
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  return std::min(exact + static_cast<Index>(far / farthest * static_cast<float>(buckets - exact)),
                  buckets - 1);
}

}  // namespace

std::vector<Index> buckets_of(std::span<const Index> at_q, std::span<const Index> at_k,
                              const RelativePositions& settings) {
  const auto [buckets, max_distance, is_bidirectional] = settings;
  std::vector<Index> all;
  for (Index q : at_q)
    for (Index k : at_k) {
      if (is_bidirectional)
        all.push_back((k > q ? buckets / 2 : 0) + bucket_of(std::abs(k - q), buckets / 2, max_distance));
      else
        all.push_back(bucket_of(std::max<Index>(q - k, 0), buckets, max_distance));
    }
  return all;
}

}  // namespace shard
