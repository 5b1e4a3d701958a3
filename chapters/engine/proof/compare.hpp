#pragma once

#include <cstdint>
#include <string>

#include "engine/host_tensor.hpp"
#include "engine/placed.hpp"

namespace shard {

/// The difference between a result and the expected one, element by element.
struct Comparison {
  /// Largest distance in units in the last place: how many float32 lie between. 0: bit for bit, −0 being 0.
  std::int64_t max_ulp = 0;
  /// max |a − b| / max |b|; 0 for empty tensors.
  double relative = 0;
  /// One line on the first difference: tensor, device, index, expected, got, and what the ratio looks like.
  /// Empty when there is none.
  std::string first_difference;

  bool is_equal() const { return max_ulp == 0; }
};

/// Compares this device's part of `actual` with the same part of the expected whole.
Comparison compare(const std::string& name, const Placed& actual, const HostTensor& expected);
/// Compares two arrays of one shape. `num_devices` helps to name the likely cause; `offset` is added to the
/// reported index along `axis`.
Comparison compare(const std::string& name, const HostTensor& actual, const HostTensor& expected,
                   int num_devices = 1, int axis = 0, Index offset = 0);

/// Distance in units in the last place; the largest number when one is a NaN and the other is not.
std::int64_t ulp_distance(float a, float b);

}  // namespace shard
