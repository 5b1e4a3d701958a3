#pragma once

#include <cmath>

#include "engine/device/device.hpp"

namespace shard {

/// How layers compute: with real numbers, or on a grid, so that any cut gives the same bits.
///
/// On the grid each nonlinear result, forward and backward, is rounded to a multiple of `unit`, a power of
/// two, and kept within ±limit. Then the sums that follow are exact in float32, in any order. Exponents are
/// integers and the base is 2, so that powers are exact, and so are their sums, whatever was subtracted from
/// the exponents before.
struct Arithmetic {
  float unit = 0;  ///< 0: no rounding
  float limit = HUGE_VALF;
  ExponentialBase base = ExponentialBase::e;
  float score_scale = 1;  ///< what scores of attention are multiplied by: 1/√d in most networks
  float logit_scale = 1;  ///< what logits of tokens and of experts are multiplied by

  /// The largest exponent on the grid, and minus the smallest. So a sum of powers spans 2^8.
  static constexpr float largest_exponent = 4;

  /// Of heads of this width, with scores scaled by 1/√d.
  static Arithmetic real(Index head_dim) {
    Arithmetic how;
    how.score_scale = 1 / std::sqrt(static_cast<float>(head_dim));
    return how;
  }
  bool is_exact() const { return unit != 0; }

  /// A nonlinear result.
  Tensor rounded(Tensor t) const { return round_to(std::move(t), unit, limit); }
  /// Scores or logits, to be exponents.
  Tensor exponents(Tensor t) const {
    return is_exact() ? round_to(std::move(t), 1, largest_exponent) : std::move(t);
  }
};

}  // namespace shard
