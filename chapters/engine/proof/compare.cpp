#include "engine/proof/compare.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

namespace shard {

namespace {

constexpr std::int64_t farthest = std::numeric_limits<std::int64_t>::max();

/// float32 as integers of the same order, equal for 0 and −0.
std::int64_t ordered(float value) {
  auto bits = std::bit_cast<std::int32_t>(value);
  return bits >= 0 ? std::int64_t{bits} : std::int64_t{std::numeric_limits<std::int32_t>::min()} - bits;
}

/// (3, 7): where element i of a tensor of this shape lies, shifted along an axis.
std::string index_of(Index element, const Shape& shape, int axis, Index offset) {
  Shape index(shape.size());
  for (std::size_t i = shape.size(); i-- > 0; element /= std::max<Index>(shape[i], 1))
    index[i] = element % shape[i];
  if (axis < static_cast<int>(index.size())) index[static_cast<std::size_t>(axis)] += offset;
  return to_string(index);
}

/// The effects of common mistakes on a gradient.
std::string guess(float expected, float got, int num_devices) {
  float n = static_cast<float>(num_devices);
  if (std::isnan(got)) return "not a number";
  if (got == 0) return "0: never written, or its addends were left out?";
  if (expected == 0) return "";
  float ratio = got / expected;
  if (ratio == -1) return "exactly -1: a sign?";
  if (n == 1) return "";
  if (ratio == 1 / n) return fmt::format("exactly 1/{:g}: averaged where a sum was meant?", n);
  if (ratio == n) return fmt::format("exactly {:g}: summed where every device already had the sum?", n);
  return "";
}

}  // namespace

std::int64_t ulp_distance(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b) ? 0 : farthest;
  return std::abs(ordered(a) - ordered(b));
}

Comparison compare(const std::string& name, const HostTensor& actual, const HostTensor& expected,
                   int num_devices, int axis, Index offset) {
  Comparison result;
  if (actual.shape != expected.shape) {
    result.max_ulp = farthest;
    result.relative = std::numeric_limits<double>::infinity();
    result.first_difference = fmt::format("{} on device {}: expected shape {}, got {}", name, this_device(),
                                          to_string(expected.shape), to_string(actual.shape));
    return result;
  }
  double difference = 0;
  double largest = 0;
  for (std::size_t i = 0; i < actual.values.size(); ++i) {
    float got = actual.values[i];
    float want = expected.values[i];
    std::int64_t distance = ulp_distance(got, want);
    if (distance > 0 && result.max_ulp == 0) {
      std::string hint = guess(want, got, num_devices);
      result.first_difference =
          fmt::format("{} on device {} at {}: expected {}, got {}{}", name, this_device(),
                      index_of(static_cast<Index>(i), actual.shape, axis, offset), want, got,
                      hint.empty() ? "" : fmt::format(" ({})", hint));
    }
    result.max_ulp = std::max(result.max_ulp, distance);
    difference = std::max(difference, std::abs(double{got} - double{want}));
    largest = std::max(largest, std::abs(double{want}));
  }
  if (difference > 0) result.relative = difference / largest;
  return result;
}

Comparison compare(const std::string& name, const Placed& actual, const HostTensor& expected) {
  const int devices = actual.group().num_devices();
  if (actual.global_shape() != expected.shape)
    return compare(name, HostTensor{actual.global_shape(), {}}, HostTensor{expected.shape, {}}, devices);
  if (!actual.is_here()) return {};
  Tensor part = actual.slice_of(Tensor::from_host(expected.shape, expected.values));
  return compare(name, HostTensor{actual.local().shape(), actual.local().to_host()},
                 HostTensor{part.shape(), part.to_host()}, devices, actual.placement().axis, actual.offset());
}

}  // namespace shard
