#pragma once

#include <cmath>

#include "engine/device/device.hpp"
#include "engine/device/layer_operations.hpp"

namespace shard {

/// The numbers that layers compute with: real numbers, or a grid, on which any cut gives the same bits.
///
/// On the grid each nonlinear result, forward and backward, is rounded to a multiple of `unit`, a power of
/// two, and limited to ±limit. The sums that follow are then exact in float32, in any order. Exponents are
/// integers and the base is 2, so powers and their sums are exact, even if another number was subtracted from
/// the exponents first.
struct Arithmetic {
  float unit = 0;  ///< 0: no rounding
  float limit = HUGE_VALF;
  ExponentialBase base = ExponentialBase::e;
  float score_scale = 1;  ///< factor of attention's scores: 1/√d in most networks
  float logit_scale = 1;  ///< factor of the logits of tokens and of experts

  /// The limits of exponents on the grid are ± this number. So the powers of a sum span a factor of 2^8.
  static constexpr float largest_exponent = 4;

  /// Real numbers, for heads of this width, with scores scaled by 1/√d.
  static Arithmetic real(Index head_dim) {
    Arithmetic how;
    how.score_scale = 1 / std::sqrt(static_cast<float>(head_dim));
    return how;
  }
  bool is_exact() const { return unit != 0; }

  /// Rounds a nonlinear result.
  Tensor rounded(Tensor t) const { return round_to(std::move(t), unit, limit); }
  /// Makes exponents of scores or logits: on the grid, by rounding.
  Tensor exponents(Tensor t) const {
    return is_exact() ? round_to(std::move(t), 1, largest_exponent) : std::move(t);
  }
};

}  // namespace shard
