#pragma once

/// What scenes pass around: numbers that show where they come from.

#include <fmt/format.h>

#include "scene.hpp"

namespace shard::primer {

/// Numbers 10 d + i on device d: the tens tell whose number it is, the ones which of its numbers.
inline Tensor numbered(const Communicator& group, Shape shape) {
  std::vector<float> values;
  for (Index i = 0; i < num_elements(shape); ++i)
    values.push_back(static_cast<float>(10 * group.device_id() + i));
  return Tensor::from_host(std::move(shape), values);
}

/// Row i of device d as an addend of a sum: 1, 2, 4 or 8 by row, in the d-th of n digits. A sum of them shows
/// whose addends are in it. Exact in float32 for up to 8 devices.
inline Index addend(Index i, int d, int n) {
  Index value = Index{1} << (i % 4);
  for (int later = d + 1; later < n; ++later) value *= 10;
  return value;
}
/// The sum of the addends of devices [0, last).
inline Index sum_of_addends(Index i, int last, int n) {
  Index sum = 0;
  for (int d = 0; d < last; ++d) sum += addend(i, d, n);
  return sum;
}
/// What is wrong with a sum of row i: ": the addend of device 1 is missing". Nothing if no addend is.
inline std::string said_of_sum(Index i, Index given, int n) {
  std::string missing, other;
  for (int d = n - 1; d >= 0; --d, given /= 10) {
    const Index digit = given % 10, right = addend(i, 0, 1);
    if (digit == 0) missing = fmt::format(": the addend of device {} is missing", d);
    if (digit != 0 && digit != right)
      other = fmt::format(": the digit of device {} is {} and not {}: added again, or of another chunk?", d,
                          digit, right);
  }
  return other.empty() ? missing : other;
}
/// My addends, (rows, 1).
inline Tensor addends(const Communicator& group, Index rows) {
  std::vector<float> values;
  for (Index i = 0; i < rows; ++i)
    values.push_back(static_cast<float>(addend(i, group.device_id(), group.num_devices())));
  return Tensor::from_host({rows, 1}, values);
}

}  // namespace shard::primer
