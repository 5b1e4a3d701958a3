#pragma once

/// What the layers of this folder hold and compute, as traces (trace.hpp): the closed forms of their memory. A
/// function is named for its layer. Its sizes are those of this device: T rows, D and F columns, V of the
/// vocabulary. What a layer keeps or returns stays held; the caller releases it.

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

/// Holds g, u, h (3 T F) and the result (T D).
void feed_forward(Trace& trace, Index T, Index D, Index F);
/// Holds the gradients of the weights (3 D F) and of the rows (T D); frees g, u, h.
void feed_forward_backward(Trace& trace, Index T, Index D, Index F);

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
/// Holds the gates' gradient (T k), the gradients of all weights (3 E D F), and of the rows (T D). Frees answers,
/// and g, u, h.
void mixture_of_experts_backward(Trace& trace, const MixtureSizes& z);

/// Attention of some heads on a device: B sequences of n queries and m keys, H query heads and G key-value heads
/// of width d.
struct AttentionSizes {
  Index B, n, m, H, G, d;

  Index queries() const { return B * n * H * d; }
  Index keys() const { return B * m * G * d; }
};
/// Holds largest scores, sums and weighted values of each head, (B H n) (2 + d).
void begin_attention(Trace& trace, const AttentionSizes& z);
/// A piece of keys of which some query sees one.
void attend(Trace& trace, const AttentionSizes& z);
/// Holds the result (B n H d), in the place of the weighted values.
void attended(Trace& trace, const AttentionSizes& z);
/// Holds the gradients of q (B n H d), and of k and v (B m G d).
void attend_backward(Trace& trace, const AttentionSizes& z);

}  // namespace shard::traces
