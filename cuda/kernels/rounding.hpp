#pragma once

/// Rounds float32 to bf16.

#include "cuda/kernels/elements.hpp"

namespace shard::kernels {

/// A float32 rounded to its upper 16 bits: to the nearest, ties to even.
SHARDBOOK_KERNEL std::uint16_t bf16_of(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const bool is_finite = (bits & 0x7f800000U) != 0x7f800000U;
  const std::uint32_t is_nan = (bits & 0x007fffffU) == 0 ? 0 : 1;
  if (!is_finite)
    return static_cast<std::uint16_t>(bits >> 16 | is_nan);  // its upper bits alone may be an infinity
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1)) >> 16);
}

struct ToBf16 {
  SHARDBOOK_KERNEL void operator()(Index i, const float* from, std::uint16_t* to) const {
    to[i] = bf16_of(from[i]);
  }
};

}  // namespace shard::kernels
