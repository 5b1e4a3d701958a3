#pragma once

/// Floating-point operations of a decoder's layers, for closed forms: matrix products, forward and backward.
/// Other operations are not counted.

#include "engine/proof/costs.hpp"

namespace shard::decoders {

/// A product with weights (in, out): forward, and backward the gradients of the weights and of the input.
constexpr Index linear_flops(Index tokens, Index in, Index out) {
  return 3 * product_flops(tokens, in, out);
}

/// SwiGLU with `hidden` units: two products with weights (width, hidden), and one with (hidden, width). In a
/// mixture of experts each choice of a token counts as a token, whichever expert it is.
constexpr Index feed_forward_flops(Index tokens, Index width, Index hidden) {
  return 3 * linear_flops(tokens, width, hidden);
}

/// One head of one sequence, for a piece of keys of which some query sees one. Products are computed for
/// masked keys, too. Forward: q kᵀ, and the powers times v. Backward: q kᵀ again, and dv, dp, dq and dk.
constexpr Index attention_flops(Index queries, Index keys, Index head_dim) {
  return (2 + 5) * product_flops(queries, keys, head_dim);
}

}  // namespace shard::decoders
