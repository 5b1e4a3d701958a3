#pragma once

/// Operations of a decoder's parts in a step, forward and backward, for the closed forms of this chapter.

#include "engine/workloads/decoder.hpp"

namespace shard::decoders {

/// What a closed form depends on. \throws Error internal for another workload
struct DecoderSetting : Setting {
  DecoderModel model;
  Index length;  ///< S

  DecoderSetting(const Setting& setting)  // a conversion, so that a form can be given the general one
      : Setting(setting),
        model(as_decoder(*setting.workload).model()),
        length(as_decoder(*setting.workload).length()) {}
};

/// A weight's product for some rows, and the two of its backward pass: dL/dx and the weight's gradient.
inline Index linear_flops(Index rows, Index in, Index out) {
  return 3 * product_flops(rows, in, out);
}

/// Attention of a block on whole sequences. For each head, 2 products forward: scores q kᵀ and p v; and 5
/// backward: scores again, dv = pᵀ do, dp = do vᵀ, dk = dsᵀ q and dq = ds k. Each is of all queries and all
/// keys, also of keys that a query does not see.
inline Index attention_flops(const DecoderModel& m, Index sequences, Index length) {
  const Index rows = sequences * length;
  const Index projections = 2 * linear_flops(rows, m.model_dim, m.query_width()) +
                            2 * linear_flops(rows, m.model_dim, m.key_width());
  return projections + 7 * sequences * m.heads * product_flops(length, m.head_dim, length);
}
/// A feed-forward, or an expert: gate, up and down.
inline Index feed_forward_flops(const DecoderModel& m, Index rows) {
  return 3 * linear_flops(rows, m.model_dim, m.hidden_dim);
}
inline Index router_flops(const DecoderModel& m, Index rows) {
  return linear_flops(rows, m.model_dim, m.experts);
}
/// A block on whole sequences. In a mixture, k experts work on each row.
inline Index block_flops(const DecoderModel& m, Index sequences, Index length) {
  const Index rows = sequences * length;
  const Index thinking = m.is_mixture() ? router_flops(m, rows) + feed_forward_flops(m, m.top_k * rows)
                                        : feed_forward_flops(m, rows);
  return attention_flops(m, sequences, length) + thinking;
}
inline Index head_flops(const DecoderModel& m, Index rows) {
  return linear_flops(rows, m.model_dim, m.vocabulary);
}

}  // namespace shard::decoders
