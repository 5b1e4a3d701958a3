#include "attention.hpp"
#include "attention_by_heads.hpp"
#include "cases.hpp"

namespace shard::layer_cuts {

namespace {

constexpr Index sequences = 3, length = 7, width = 6;
constexpr Index of_x = sequences * length * width;

/// Scores are small integers: a row of powers of two spans at most 2^16, and sums of them are exact.
LayerCase attention(const std::string& name, Index heads, Index kv_heads) {
  const Index of_q = heads * head_dim, of_k = kv_heads * head_dim;
  const Form weights = 2 * reduced(width * of_q) + 2 * reduced(width * of_k);
  const Form keys = gathered(length, sequences * of_k) + scattered(length, sequences * of_k);
  return {name,
          signs(name + " x", {sequences, length, width}),
          numbers(name + " dy", {sequences, length, width}),
          {{"wq", exact::sparse_signs({width, of_q}, CounterRandom(7, name + " wq"))},
           {"wk", exact::sparse_signs({width, of_k}, CounterRandom(7, name + " wk"))},
           {"wv", numbers(name + " wv", {width, of_k})},
           {"wo", numbers(name + " wo", {of_q, width})}},
          make<Attention<Replicated>>,
          {claim<Attention<Sharded<0>>>("batch", Verdict::free, "the weights' gradients are sums", weights),
           claim<AttentionByHeads<Sharded<1>, false>>("heads", Verdict::exact, "all_reduce of y, of dx",
                                                      2 * reduced(of_x)),
           claim<AttentionByHeads<Sharded<1>, true>>("heads", Verdict::differs, "dx is not summed"),
           claim<Attention<Sharded<1>>>("sequence", Verdict::exact,
                                        "all_gather of k, v; reduce_scatter of dk, dv", weights + 2 * keys),
           claim<Attention<Sharded<1>, true>>("sequence", Verdict::differs, "my tokens' keys and values")}};
}

}  // namespace

LayerCase multi_head_attention() {
  return attention("multi-head attention", 3, 3);
}

LayerCase grouped_query_attention() {
  const Index kv_heads = 2;
  LayerCase layer = attention("grouped-query attention", 6, kv_heads);
  const Index of_wk = width * kv_heads * head_dim;
  layer.claims.push_back(claim<AttentionByHeads<Replicated, false>>("query heads", Verdict::exact,
                                                                    "all_reduce of y, dx, dWk, dWv",
                                                                    2 * reduced(of_x) + 2 * reduced(of_wk)));
  layer.claims.push_back(
      claim<AttentionByHeads<Replicated, true>>("query heads", Verdict::differs, "dWk, dWv are not summed"));
  return layer;
}

}  // namespace shard::layer_cuts
