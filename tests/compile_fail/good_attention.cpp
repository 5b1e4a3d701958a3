// expect: success
// Heads are divided, and each device has the keys of its query heads, or all keys.
#include "engine/layers/attention.hpp"

using namespace shard;

auto attend_to_my_heads(const Sharded<1>& q, const Sharded<1>& k, std::span<const Index> at,
                        const AttentionHeads& heads, OnlineSoftmax& softmax) {
  return attention(q, k, k, at, at, heads, softmax);
}

auto attend_to_all_heads(const Sharded<1>& q, const Replicated& k, std::span<const Index> at,
                         const AttentionHeads& heads, OnlineSoftmax& softmax) {
  return attention(q, k, k, at, at, heads, softmax);
}
