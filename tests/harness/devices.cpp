#include "tests/harness/devices.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <ostream>

#include "engine/device/this_device.hpp"
#include "engine/workloads/random.hpp"

namespace shard {

std::ostream& operator<<(std::ostream& out, const Traffic& traffic) {
  return out << traffic.messages << " messages of " << traffic.bytes << " bytes";
}

namespace testing {

std::string name_of_group(const Communicator& group) {
  return group.group_id() == 0 ? "" : fmt::format("{{{}}}", fmt::join(group.members(), ", "));
}

GroupUnderTest& group() {
  return device().state<GroupUnderTest>();
}

PlainEngine& engine() {
  struct OnGroup : PlainEngine {
    OnGroup() : PlainEngine(testing::group()) {}  // not the engine's own group
  };
  return device().state<OnGroup>();
}

int me() {
  return group().device_id();
}
int devices() {
  return group().num_devices();
}
int left() {
  return (me() + devices() - 1) % devices();
}
int right() {
  return (me() + 1) % devices();
}
Tensor pass_on(const Tensor& t) {
  if (me() % 2 == 0) {
    engine().send(right(), t);
    return engine().receive(left());
  }
  Tensor received = engine().receive(left());
  engine().send(right(), t);
  return received;
}

int id(int place) {
  return group().members().at(static_cast<std::size_t>(place));
}

namespace {

/// Moves to the next place in row-major order.
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

float at(const HostTensor& t, const Place& place) {
  Index offset = 0;
  for (std::size_t axis = 0; axis < t.shape.size(); ++axis) offset = offset * t.shape[axis] + place[axis];
  return t.values.at(static_cast<std::size_t>(offset));
}

HostTensor tabulate(const Shape& shape, const std::function<float(const Place&)>& element) {
  HostTensor host{shape, {}};
  Place place(shape.size(), 0);
  for (Index i = 0; i < num_elements(shape); ++i, advance(place, shape))
    host.values.push_back(element(place));
  return host;
}

Tensor to_device(const HostTensor& host) {
  return Tensor::from_host(host.shape, host.values);
}
HostTensor to_host(const Tensor& t) {
  return {t.shape(), t.to_host()};
}

HostTensor integers(const Shape& shape, int device, int seed) {
  CounterRandom random = generator(device, seed);
  std::uint64_t i = 0;
  return tabulate(shape, [&](const Place&) { return static_cast<float>(random.integer(i++, -4, 4)); });
}

HostTensor reals(const Shape& shape, int device, int seed) {
  CounterRandom random = generator(device, seed);
  std::uint64_t i = 0;
  return tabulate(shape, [&](const Place&) { return 2 * random.uniform(i++) - 1; });
}

std::vector<HostTensor> on_each(HostTensor input(const Shape&, int, int), const Shape& shape, int seed) {
  std::vector<HostTensor> inputs;
  for (int d = 0; d < group().num_devices(); ++d) inputs.push_back(input(shape, d, seed));
  return inputs;
}

HostTensor reduced(const std::vector<HostTensor>& addends, ReduceOp op) {
  HostTensor result = addends.at(0);
  for (std::size_t d = 1; d < addends.size(); ++d)
    for (std::size_t i = 0; i < result.values.size(); ++i)
      result.values[i] = combined(result.values[i], addends[d].values.at(i), op);
  if (op == ReduceOp::avg)
    for (float& value : result.values) value /= static_cast<float>(addends.size());
  return result;
}

HostTensor sliced(const HostTensor& t, int axis, Range range) {
  return tabulate(with(t.shape, axis, range.size()), [&](Place place) {
    place[static_cast<std::size_t>(axis)] += range.begin;
    return at(t, place);
  });
}

HostTensor joined(const std::vector<HostTensor>& parts, int axis) {
  const auto a = static_cast<std::size_t>(axis);
  Index extent = 0;
  for (const HostTensor& part : parts) extent += part.shape.at(a);
  return tabulate(with(parts.at(0).shape, axis, extent), [&](Place place) {
    auto part = parts.begin();
    for (; place[a] >= part->shape[a]; ++part) place[a] -= part->shape[a];
    return at(*part, place);
  });
}

HostTensor product(const HostTensor& a, const HostTensor& b) {
  return tabulate({a.shape.at(0), b.shape.at(1)}, [&](const Place& place) {
    float sum = 0;
    for (Index k = 0; k < a.shape.at(1); ++k) sum += at(a, {place[0], k}) * at(b, {k, place[1]});
    return sum;
  });
}

std::string difference(const Tensor& given, const HostTensor& expected) {
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
