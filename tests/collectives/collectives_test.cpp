// The values of every collective, for all ranks, axes and cuts, compared with those of all inputs.

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8}, .with_all = {6, 7}, .processes = {1, 2, 3, 4, 5, 8},
        .on_cuda = {1, 2, 3, 4});

namespace {

int rank_of(const Shape& shape) {
  return static_cast<int>(shape.size());
}

/// Extents of the devices' slices: equal, all 0, unsorted with 0 among them, all on the last device, all on
/// the first, and many.
std::vector<std::vector<Index>> cuts() {
  std::vector<std::vector<Index>> all(6);
  for (int d = 0; d < devices(); ++d) {
    all[0].push_back(2);
    all[1].push_back(0);
    all[2].push_back((3 * d + 2) % 4);
    all[3].push_back(d == devices() - 1 ? 5 : 0);
    all[4].push_back(d == 0 ? 3 : 0);
    all[5].push_back(700 * ((d + 2) % 3));
  }
  return all;
}

/// The slices of all devices: the shape with each extent along the axis.
std::vector<HostTensor> slices_of(const Shape& shape, int axis, const std::vector<Index>& extents) {
  std::vector<HostTensor> inputs;
  for (int d = 0; d < devices(); ++d)
    inputs.push_back(integers(with(shape, axis, extents[static_cast<std::size_t>(d)]), d));
  return inputs;
}

}  // namespace

TEST_CASE("all_reduce combines all devices' tensors") {
  for (const Shape& shape : shapes)
    for (ReduceOp op : all_ops) {
      CAPTURE(to_string(shape), name(op));
      const std::vector<HostTensor> inputs = on_each(integers, shape);
      CHECK(difference(engine().all_reduce(to_device(mine(inputs)), op), reduced(inputs, op)) == "");
    }
}

// Chunk k starts on device k+1 and travels right until it reaches device k.
TEST_CASE("a float sum is made in the order of the ring, and comes out the same on every device") {
  if (traffic_is_booked()) return;  // NCCL has another order
  for (Index size : {1, 2, 63, 1000, 100'003})
    for (ReduceOp op : all_ops) {
      CAPTURE(size, name(op));
      const std::vector<HostTensor> inputs = on_each(reals, {size});
      HostTensor expected{{size}, {}};
      for (int k = 0; k < devices(); ++k) {
        std::vector<HostTensor> in_order;
        for (int step = 1; step <= devices(); ++step)
          in_order.push_back(
              sliced(inputs[static_cast<std::size_t>((k + step) % devices())], 0, part(size, devices(), k)));
        std::ranges::copy(reduced(in_order, op).values, std::back_inserter(expected.values));
      }
      CHECK(difference(engine().all_reduce(to_device(mine(inputs)), op), expected) == "");
      CHECK(difference(engine().reduce_scatter(to_device(mine(inputs)), op),
                       sliced(expected, 0, part(size, devices(), me()))) == "");
    }
}

TEST_CASE("reduce_scatter leaves each device its part of the combination") {
  for (const Shape& shape : shapes)
    for (int axis = 0; axis < rank_of(shape); ++axis)
      for (ReduceOp op : all_ops) {
        CAPTURE(to_string(shape), axis, name(op));
        const std::vector<HostTensor> inputs = on_each(integers, shape);
        const Range part_of_mine = part(shape[static_cast<std::size_t>(axis)], devices(), me());
        CHECK(difference(engine().reduce_scatter(to_device(mine(inputs)), op, axis),
                         sliced(reduced(inputs, op), axis, part_of_mine)) == "");
      }
}

TEST_CASE("all_gather puts the slices one behind the other, whatever their sizes, and can keep them") {
  for (const Shape& shape : shapes)
    for (int axis = 0; axis < rank_of(shape); ++axis)
      for (const std::vector<Index>& extents : cuts()) {
        CAPTURE(to_string(shape), axis, extents);
        const std::vector<HostTensor> inputs = slices_of(shape, axis, extents);
        CHECK(difference(engine().all_gather(to_device(mine(inputs)), axis), joined(inputs, axis)) == "");
        const Tensor slice = to_device(mine(inputs));
        CHECK(difference(group().all_gather_async(slice, axis).get(), joined(inputs, axis)) == "");
        CHECK(difference(slice, mine(inputs)) == "");
      }
}

namespace {

/// The expected result of all_to_all on this device: each device's part for it, in device order.
HostTensor exchanged(const std::vector<HostTensor>& inputs, int split_axis, int concat_axis) {
  std::vector<HostTensor> parts;
  for (const HostTensor& input : inputs) {
    const Index extent = input.shape[static_cast<std::size_t>(split_axis)];
    parts.push_back(sliced(input, split_axis, part(extent, devices(), me())));
  }
  return joined(parts, concat_axis);
}

}  // namespace

TEST_CASE("all_to_all cuts along one axis and puts together along another") {
  for (const Shape& shape : shapes)
    for (int split_axis = 0; split_axis < rank_of(shape); ++split_axis)
      for (int concat_axis = 0; concat_axis < rank_of(shape); ++concat_axis) {
        CAPTURE(to_string(shape), split_axis, concat_axis);
        const std::vector<HostTensor> inputs = on_each(integers, shape);
        CHECK(difference(engine().all_to_all(to_device(mine(inputs)), split_axis, concat_axis),
                         exchanged(inputs, split_axis, concat_axis)) == "");
      }
}

TEST_CASE("all_to_all takes tensors that differ along the axis of putting together") {
  for (const std::vector<Index>& extents : cuts())
    for (int split_axis : {0, 1}) {
      CAPTURE(extents, split_axis);
      const std::vector<HostTensor> inputs = slices_of({6, 7}, 1, extents);
      CHECK(difference(engine().all_to_all(to_device(mine(inputs)), split_axis, 1),
                       exchanged(inputs, split_axis, 1)) == "");
    }
}

TEST_CASE("collectives are sums, and along axis 0, unless told otherwise") {
  const std::vector<HostTensor> inputs = on_each(integers, {5, 9});
  const HostTensor sum = reduced(inputs, ReduceOp::sum);
  CHECK(difference(engine().all_reduce(to_device(mine(inputs))), sum) == "");
  CHECK(difference(engine().reduce_scatter(to_device(mine(inputs))),
                   sliced(sum, 0, part(5, devices(), me()))) == "");
  CHECK(difference(engine().all_gather(to_device(mine(inputs))), joined(inputs, 0)) == "");
  CHECK(difference(engine().all_to_all(to_device(mine(inputs))), exchanged(inputs, 0, 0)) == "");
  CHECK(difference(engine().all_to_all(to_device(mine(inputs)), 1), exchanged(inputs, 1, 1)) == "");
}

namespace {

/// The number of slices that device `from` sends to device `to`, in several patterns, some with 0.
Index count(int pattern, int from, int to) {
  switch (pattern) {
    case 0:
      return (2 * from + 3 * to + 1) % 4;
    case 1:
      return to == 0 ? from : 0;  // all to one
    case 2:
      return from == to ? 3 : 0;  // all stay
    default:
      return 0;
  }
}

std::vector<Index> counts_of(int pattern, int from) {
  std::vector<Index> counts;
  for (int to = 0; to < devices(); ++to) counts.push_back(count(pattern, from, to));
  return counts;
}

/// The expected result on this device when every device sends by its counts.
HostTensor routed(const std::vector<HostTensor>& inputs, int pattern, int axis) {
  std::vector<HostTensor> parts;
  for (int from = 0; from < devices(); ++from) {
    Index begin = 0;
    for (int to = 0; to < me(); ++to) begin += count(pattern, from, to);
    parts.push_back(
        sliced(inputs[static_cast<std::size_t>(from)], axis, {begin, begin + count(pattern, from, me())}));
  }
  return joined(parts, axis);
}

}  // namespace

TEST_CASE("all_to_all with counts sends as many slices to each device as it says") {
  for (const Shape& shape : {Shape{1}, Shape{1, 3}, Shape{2, 1, 3}, Shape{3, 2, 1}, Shape{1, 0}})
    for (int axis = 0; axis < rank_of(shape); ++axis)
      for (int pattern : {0, 1, 2, 3}) {
        CAPTURE(to_string(shape), axis, pattern);
        std::vector<HostTensor> inputs;
        for (int d = 0; d < devices(); ++d) {
          Index extent = 0;
          for (Index c : counts_of(pattern, d)) extent += c;
          inputs.push_back(integers(with(shape, axis, extent), d));
        }
        CHECK(difference(engine().all_to_all(to_device(mine(inputs)), counts_of(pattern, me()), axis),
                         routed(inputs, pattern, axis)) == "");
      }
}

TEST_CASE("broadcast gives everybody the root's tensor and ignores what others pass") {
  for (const Shape& shape : shapes)
    for (int root = 0; root < devices(); ++root) {
      CAPTURE(to_string(shape), root);
      const HostTensor expected = integers(shape, root);
      CHECK(difference(engine().broadcast(me() == root ? to_device(expected) : Tensor(), root), expected) ==
            "");
      Tensor ignored = to_device(integers({2, 2}, me()));
      CHECK(difference(engine().broadcast(me() == root ? to_device(expected) : std::move(ignored), root),
                       expected) == "");
    }
}

TEST_CASE("nobody leaves a barrier before everybody has entered it") {
  const auto now = [] {
    return static_cast<Index>(std::chrono::steady_clock::now().time_since_epoch().count());
  };
  for (int late = 0; late < devices(); ++late) {
    if (me() == late) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const Index entered = now();  // all devices of a test share this clock
    engine().barrier();
    const Index left = now();
    for (Index theirs : group().exchange("the time of entry", entered)) CHECK(left >= theirs);
  }
}

TEST_CASE("exchange gives everybody's number in device order") {
  for (Index factor : {Index{1}, Index{-7}, Index{1} << 40}) {
    const std::vector<Index> numbers = group().exchange("a number", factor * (me() + 1));
    REQUIRE(numbers.size() == static_cast<std::size_t>(devices()));
    for (int d = 0; d < devices(); ++d) CHECK(numbers[static_cast<std::size_t>(d)] == factor * (d + 1));
  }
}

TEST_CASE("gather gives everybody's text in device order, on device 0 or on all devices") {
  std::vector<std::string> expected;
  for (int d = 0; d < devices(); ++d) expected.push_back(std::string(static_cast<std::size_t>(d), 'x'));
  const std::string& mine = expected[static_cast<std::size_t>(me())];
  CHECK(group().gather("a text", mine) == (me() == 0 ? expected : std::vector<std::string>()));
  CHECK(group().gather_for_all("a text", mine) == expected);
}

TEST_CASE("print_in_device_order writes on device 0, one device after another") {
  std::ostringstream out;
  print_in_device_order(
      group(), out, "mine:", to_device(tabulate({2}, [](const Place& at) { return at[0] + 10.0F * me(); })));
  std::ostringstream expected;
  for (int d = 0; me() == 0 && d < devices(); ++d)
    expected << "device " << id(d) << ": mine: (2,) [" << 10 * d << ", " << 10 * d + 1 << "]\n";
  CHECK(out.str() == expected.str());
}
