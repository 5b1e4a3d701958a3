#pragma once

/// Matrices of a few numbers.

#include <limits>

#include "tests/harness/refused.hpp"

namespace shard::testing {

using Values = std::vector<float>;
using Indices = std::vector<Index>;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

inline Tensor vector(const Values& values) {
  return Tensor::from_host({static_cast<Index>(values.size())}, values);
}
inline Tensor matrix(Index rows, Index columns, const Values& values) {
  return Tensor::from_host({rows, columns}, values);
}

}  // namespace shard::testing
