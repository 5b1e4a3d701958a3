#include "tests/harness/devices.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <ostream>

#include "engine/workloads/random.hpp"

namespace shard {

std::ostream& operator<<(std::ostream& out, const Traffic& traffic) {
  return out << traffic.messages << " messages of " << traffic.bytes << " bytes";
}

namespace testing {

namespace {

/// The next place in row-major order.
void advance(Place& place, const Shape& shape) {
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (++place[axis] < shape[axis]) return;
    place[axis] = 0;
  }
}

float combined(float a, float b, ReduceOp op) {
  switch (op) {
    case ReduceOp::max:
      return a > b ? a : b;
    case ReduceOp::min:
      return a < b ? a : b;
    case ReduceOp::prod:
      return a * b;
    default:
      return a + b;
  }
}

CounterRandom generator(int device, int seed) {
  return CounterRandom(static_cast<std::uint64_t>(seed), fmt::format("input of device {}", device));
}

}  // namespace

GroupUnderTest& group() {
  static GroupUnderTest instance;
  return instance;
}

int id(int place) {
  return group().members().at(static_cast<std::size_t>(place));
}

float Host::at(const Place& place) const {
  Index offset = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) offset = offset * shape[axis] + place[axis];
  return values.at(static_cast<std::size_t>(offset));
}

Host tabulate(const Shape& shape, const std::function<float(const Place&)>& element) {
  Host host{shape, {}};
  Place place(shape.size(), 0);
  for (Index i = 0; i < num_elements(shape); ++i, advance(place, shape))
    host.values.push_back(element(place));
  return host;
}

Tensor to_device(const Host& host) {
  return Tensor::from_host(host.shape, host.values);
}
Host to_host(const Tensor& t) {
  return {t.shape(), t.to_host()};
}

Host integers(const Shape& shape, int device, int seed) {
  CounterRandom random = generator(device, seed);
  std::uint64_t i = 0;
  return tabulate(shape, [&](const Place&) { return static_cast<float>(random.integer(i++, -4, 4)); });
}

Host reals(const Shape& shape, int device, int seed) {
  CounterRandom random = generator(device, seed);
  std::uint64_t i = 0;
  return tabulate(shape, [&](const Place&) { return 2 * random.uniform(i++) - 1; });
}

std::vector<Host> on_each(Host input(const Shape&, int, int), const Shape& shape, int seed) {
  std::vector<Host> inputs;
  for (int d = 0; d < group().num_devices(); ++d) inputs.push_back(input(shape, d, seed));
  return inputs;
}

Host reduced(const std::vector<Host>& addends, ReduceOp op) {
  Host result = addends.at(0);
  for (std::size_t d = 1; d < addends.size(); ++d)
    for (std::size_t i = 0; i < result.values.size(); ++i)
      result.values[i] = combined(result.values[i], addends[d].values.at(i), op);
  if (op == ReduceOp::avg)
    for (float& value : result.values) value /= static_cast<float>(addends.size());
  return result;
}

Host sliced(const Host& t, int axis, Range range) {
  return tabulate(with(t.shape, axis, range.size()), [&](Place place) {
    place[static_cast<std::size_t>(axis)] += range.begin;
    return t.at(place);
  });
}

Host joined(const std::vector<Host>& parts, int axis) {
  const auto a = static_cast<std::size_t>(axis);
  Index extent = 0;
  for (const Host& part : parts) extent += part.shape.at(a);
  return tabulate(with(parts.at(0).shape, axis, extent), [&](Place place) {
    auto part = parts.begin();
    for (; place[a] >= part->shape[a]; ++part) place[a] -= part->shape[a];
    return part->at(place);
  });
}

Host product(const Host& a, const Host& b) {
  return tabulate({a.shape.at(0), b.shape.at(1)}, [&](const Place& place) {
    float sum = 0;
    for (Index k = 0; k < a.shape.at(1); ++k) sum += a.at({place[0], k}) * b.at({k, place[1]});
    return sum;
  });
}

Host transposed(const Host& m) {
  return tabulate({m.shape.at(1), m.shape.at(0)}, [&](const Place& place) {
    return m.at({place[1], place[0]});
  });
}

std::string difference(const Tensor& given, const Host& expected) {
  if (given.shape() != expected.shape)
    return fmt::format("shape {}, expected {}", to_string(given.shape()), to_string(expected.shape));
  const std::vector<float> values = given.to_host();
  Place place(expected.shape.size(), 0);
  for (std::size_t i = 0; i < values.size(); ++i, advance(place, expected.shape))
    if (values[i] != expected.values.at(i))
      return fmt::format("at ({}): {}, expected {}", fmt::join(place, ", "), values[i], expected.values[i]);
  return "";
}

Shape with(Shape shape, int axis, Index extent) {
  shape.at(static_cast<std::size_t>(axis)) = extent;
  return shape;
}

Refusal refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.exit_code(), error.what()};
  }
  return {};
}

std::ostream& operator<<(std::ostream& out, const Measured& m) {
  return out << m.traffic << ", by other calls " << m.other_traffic << ", buffers of " << m.buffer_bytes
             << " bytes";
}

Measured measured(Collective collective, const std::function<void()>& action) {
  ledger().reset();
  const Index held = ledger().live(Purpose::buffers);
  action();
  Measured result;
  result.traffic = ledger().traffic(collective);
  result.other_traffic = ledger().traffic();
  result.other_traffic += -1 * result.traffic;
  result.buffer_bytes = ledger().peak(Purpose::buffers) - held;
  return result;
}

}  // namespace testing
}  // namespace shard
