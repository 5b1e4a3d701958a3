#pragma once

#include <cmath>

namespace shard {

/// The larger of two numbers, and NaN if one of them is NaN. (std::max returns the first one if either is NaN.)
inline double larger(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}

}  // namespace shard
