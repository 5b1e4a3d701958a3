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

/// (3, 7): where element i of a part lies in the whole, if the part begins there.
std::string index_of(Index element, const Shape& shape, const Shape& begin) {
  Shape index = place_of(element, shape);
  for (std::size_t axis = 0; axis < std::min(index.size(), begin.size()); ++axis) index[axis] += begin[axis];
  return to_string(index);
}

/// What cannot be compared element by element: "w on device 1: TEXT".
Comparison unlike(const std::string& name, const std::string& text, Cause cause) {
  return {.max_ulp = farthest,
          .relative = std::numeric_limits<double>::infinity(),
          .first_difference = fmt::format("{} on device {}: {}", name, this_device(), text),
          .cause = cause};
}

/// Shapes that differ: what is said of them.
Comparison wrong_shape(const std::string& name, const Shape& given, const Shape& expected) {
  const bool is_transposed = given == Shape(expected.rbegin(), expected.rend());
  return unlike(name,
                fmt::format("expected shape {}, given {}{}", to_string(expected), to_string(given),
                            is_transposed ? ": the transposed matrix?" : ""),
                is_transposed ? Cause::transposed : Cause::unknown);
}

/// Compares the arrays of the evidence, which is complete only once they are known to differ.
Comparison compare(const std::string& name, Evidence& e, const Shape& begin,
                   const std::function<void(Evidence&)>& complete) {
  const HostTensor& given = e.given;
  const HostTensor& expected = e.expected;
  if (given.shape != expected.shape) return wrong_shape(name, given.shape, expected.shape);
  Comparison result;
  double difference = 0;
  double largest = 0;
  std::size_t first = given.values.size();
  for (std::size_t i = 0; i < given.values.size(); ++i) {
    const std::int64_t distance = ulp_distance(given.values[i], expected.values[i]);
    if (distance > 0) first = std::min(first, i);
    result.max_ulp = std::max(result.max_ulp, distance);
    difference = std::max(difference, std::abs(double{given.values[i]} - double{expected.values[i]}));
    largest = std::max(largest, std::abs(double{expected.values[i]}));
  }
  if (difference > 0) result.relative = difference / largest;
  if (result.max_ulp == 0) return result;
  complete(e);
  Diagnosis diagnosis = diagnose(e);
  result.cause = diagnosis.cause;
  result.first_difference =
      fmt::format("{} on device {} at {}: expected {}, given {}: {}", name, this_device(),
                  index_of(static_cast<Index>(first), given.shape, begin), expected.values[first],
                  given.values[first], diagnosis.text);
  return result;
}

/// Each device's slice of a whole, along an axis.
std::vector<HostTensor> slices_of(const HostTensor& whole, int axis, int devices) {
  const Tensor t = Tensor::from_host(whole.shape, whole.values);
  std::vector<HostTensor> slices;
  for (int d = 0; d < devices; ++d) {
    const Range range = part(t.extent(axis), devices, d);
    const Tensor piece = slice(t, axis, range.begin, range.end);
    slices.push_back({piece.shape(), piece.to_host()});
  }
  return slices;
}

std::string names_of(const std::map<std::string, HostTensor>& tensors) {
  std::string names;
  for (const auto& [name, tensor] : tensors) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace

std::int64_t ulp_distance(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b) ? 0 : farthest;
  return std::abs(ordered(a) - ordered(b));
}

Comparison compare(const std::string& name, const HostTensor& actual, const HostTensor& expected,
                   int num_devices, int axis, Index offset) {
  Evidence evidence{.given = actual, .expected = expected, .num_devices = num_devices};
  Shape begin(actual.shape.size(), 0);
  if (static_cast<std::size_t>(axis) < begin.size()) begin[static_cast<std::size_t>(axis)] = offset;
  return compare(name, evidence, begin, [](Evidence&) {});
}

Comparison compare(const std::string& name, const Placed& actual, const HostTensor& expected,
                   const Background& background) {
  if (actual.global_shape() != expected.shape)
    return wrong_shape(name, actual.global_shape(), expected.shape);
  if (!actual.is_here()) return {};
  auto mine = [&](const HostTensor& whole) {
    const Tensor part = actual.slice_of(Tensor::from_host(whole.shape, whole.values));
    return HostTensor{part.shape(), part.to_host()};
  };
  const Communicator& group = actual.group();
  Evidence evidence{.given = {actual.local().shape(), actual.local().to_host()},
                    .expected = mine(expected),
                    .num_devices = group.num_devices(),
                    .place = group.device_id()};
  const Placement& placement = actual.placement();
  return compare(name, evidence, actual.begin(), [&](Evidence& e) {
    e.was_right_with_input_grad = background.was_right_with_input_grad;
    if (placement.kind == Placement::Kind::sharded)
      e.slices = slices_of(expected, placement.axis, group.num_devices());
    if (background.before) e.before = mine(background.before().at(name));
    if (background.addends)
      for (const Background::Results& of_device : background.addends())
        e.addends.push_back(mine(of_device.at(name)));
  });
}

std::vector<Comparison> compare_all(const std::map<std::string, Placed>& gradients,
                                    const std::map<std::string, HostTensor>& expected,
                                    const Background& background) {
  std::vector<Comparison> all;
  for (const auto& [name, whole] : expected) {
    const auto found = gradients.find(name);
    all.push_back(found == gradients.end()
                      ? unlike(name, "expected a gradient, given none of that name", Cause::left_out)
                      : compare(name, found->second, whole, background));
  }
  for (const auto& [name, gradient] : gradients)
    if (!expected.contains(name))
      all.push_back(unlike(name,
                           fmt::format("expected a gradient of {}, given another name", names_of(expected)),
                           Cause::left_out));
  return all;
}

}  // namespace shard
