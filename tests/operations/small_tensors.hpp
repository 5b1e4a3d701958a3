#pragma once

/// Matrices of a few numbers, and calls that are refused.

#include <limits>

#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

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

/// Checks that a call ends in an error with this code and these words.
inline void check_refused(const std::function<void()>& call, const std::string& words,
                          Code code = Code::argument) {
  const Refusal given = refusal(call);
  CHECK(given.code == static_cast<int>(code));
  CHECK_THAT(given.message, contains(words));
}

}  // namespace shard::testing
