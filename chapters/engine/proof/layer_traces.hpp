#pragma once

/// What the layers of engine/layers hold and compute, as traces (trace.hpp): the closed forms of their
/// memory. A function is named for its layer. Its sizes are those of this device: T rows, D and F columns, V
/// of the vocabulary. What a layer keeps or returns stays held; the caller releases it.

#include <optional>

#include "engine/proof/trace.hpp"

namespace shard::traces {

/// Holds x̂ (T D), r (T), and the result (T D).
void rms_norm(Trace& trace, Index T, Index D);
/// Holds the gradient of the weights (D). dx takes the memory of dy.
void rms_norm_backward(Trace& trace, Index T, Index D);

/// Holds p (T v) in the memory of the logits, and the losses (T), of whole rows.
void cross_entropy(Trace& trace, Index T);
/// dz takes the memory of p.
void cross_entropy_backward(Trace& trace, Index T);

/// Holds g, u, h (3 T F), or without a gate h (T F), and the result (T D).
void feed_forward(Trace& trace, Index T, Index D, Index F, bool has_gate = true);
/// Holds the gradients of the weights (3 D F or 2 D F) and of the rows (T D); frees g, u, h.
void feed_forward_backward(Trace& trace, Index T, Index D, Index F, bool has_gate = true);

/// Which experts the tokens of a device chose: how many choices each expert works on here.
struct MixtureSizes {
  Index T, D, F;
  Index num_experts, top_k;
  std::vector<Index> choices;  ///< (E), T k in all

  Index all_choices() const { return T * top_k; }
};
/// Holds the gates (T k), given logits (T E), which it frees.
void choose_experts(Trace& trace, const MixtureSizes& z);
/// Holds each expert's rows (T k D) and g, u, h (3 T k F), the answers (T k D), and the result (T D).
void mixture_of_experts(Trace& trace, const MixtureSizes& z);
/// Holds the gates' gradient (T k), the gradients of all weights (3 E D F), and of the rows (T D). Frees
/// answers, and g, u, h.
void mixture_of_experts_backward(Trace& trace, const MixtureSizes& z);

/// Attention of some heads on a device: B sequences, H query heads and G key-value heads of width d. Queries
/// and keys are runs of tokens (attention.hpp).
struct AttentionSizes {
  Index B, H, G, d;
  std::vector<Range> queries;  ///< places in a sequence of each run
  std::optional<Index> window;
  bool is_causal = true;
  bool has_bias = false;  ///< then queries, and keys, are one run

  Index query_rows() const { return rows_of(queries); }
  /// Elements of all queries, and of some runs of keys.
  Index of_queries() const { return query_rows() * H * d; }
  Index of_keys(const std::vector<Range>& keys) const { return rows_of(keys) * G * d; }
  /// Whether some query of a run sees some key.
  bool sees(const Range& q, const Range& k) const {
    return (!is_causal || k.begin < q.end) && (!window || k.end > q.begin - *window + 1);
  }
  /// Elements of the bias for some keys: one for each query, key and head.
  Index of_bias(const std::vector<Range>& keys) const {
    return has_bias ? H * queries.at(0).size() * keys.at(0).size() : 0;
  }

 private:
  Index rows_of(const std::vector<Range>& runs) const {
    Index rows = 0;
    for (const Range& run : runs) rows += B * run.size();
    return rows;
  }
};
/// Holds largest scores, sums and weighted values of each head, (B H n) (2 + d).
void begin_attention(Trace& trace, const AttentionSizes& z);
/// A piece of keys.
void attend(Trace& trace, const AttentionSizes& z, const std::vector<Range>& keys);
/// Holds the result (B n H d), in the place of the weighted values.
void attended(Trace& trace, const AttentionSizes& z);
/// Holds the gradients of q (B n H d), and of k and v (B m G d).
void attend_backward(Trace& trace, const AttentionSizes& z, const std::vector<Range>& keys);
/// All keys are here: of the queries' tokens, or others.
/// @{
void attention(Trace& trace, const AttentionSizes& z);
void attention(Trace& trace, const AttentionSizes& z, const std::vector<Range>& keys);
void attention_backward(Trace& trace, const AttentionSizes& z);
/// @}

}  // namespace shard::traces
