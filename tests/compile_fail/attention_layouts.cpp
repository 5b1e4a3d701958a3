// expect: attention: queries, keys and values lie alike
// Each device has all queries, and the keys of some heads: most queries would see no key of theirs.
#include "engine/layers/attention.hpp"

using namespace shard;

auto attend_to_some_heads(const Replicated& q, const Sharded<1>& k, std::span<const Index> at,
                          const AttentionHeads& heads, OnlineSoftmax& softmax) {
  return attention(q, k, k, at, at, heads, softmax);
}
