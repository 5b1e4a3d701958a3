#pragma once

/// Tools for tests of collectives: inputs that every device can compute for every other device, and expected
/// results, computed on the host, index by index, without the code under test.

#include <string>
#include <vector>

#include "engine/basics/ranges.hpp"
#include "engine/device/books/ledger.hpp"
#include "engine/device/communicator/checked_communicator.hpp"
#include "engine/engines/sharded_engine.hpp"

namespace shard::testing {

/// The group of devices on which test cases run: the world, or a part of it. It may be named before it
/// exists. It may wrap another group, which then sees every call.
class GroupUnderTest : public WrappedCommunicator {
 public:
  using WrappedCommunicator::inner;
  using WrappedCommunicator::set_inner;
};
GroupUnderTest& group();
/// The folder or the number of the chapter that `--chapter` names; empty: all chapters are tested.
std::string& chapter_under_test();
/// While such an object lives, the group under test checks claims of layout.
class CheckedRun {
 public:
  CheckedRun() : believing_(group().inner()), checking_(believing_) { group().set_inner(checking_); }
  ~CheckedRun() { group().set_inner(believing_); }
  CheckedRun(const CheckedRun&) = delete;
  CheckedRun& operator=(const CheckedRun&) = delete;

 private:
  Communicator& believing_;
  CheckedCommunicator checking_;
};

/// \name This device's place in the group under test, the number of devices, and its neighbours in a ring
/// @{
int me();
int devices();
int left();
int right();
/// Sends around the ring, and returns what arrives. Even devices send before they receive, so that no device
/// waits for ever.
Tensor pass_on(const Tensor& t);
/// @}
/// A group as errors name it: "{4, 1, 3}", and an empty text for the world.
std::string name_of_group(const Communicator& group);
/// The id in the job of the member at a place, as errors name it.
int id(int place);

/// An element's place in a tensor: its index along each axis.
using Place = std::vector<Index>;

float at(const HostTensor& t, const Place& place);

/// A tensor whose element at each place is `element(place)`.
HostTensor tabulate(const Shape& shape, const std::function<float(const Place&)>& element);
Tensor to_device(const HostTensor& host);
HostTensor to_host(const Tensor& t);

/// \name Inputs: a function of seed and device
/// @{
/// Integers in -4..4: sums and products over 8 devices are exact in float32.
HostTensor integers(const Shape& shape, int device, int seed = 0);
/// Uniform in [-1, 1).
HostTensor reals(const Shape& shape, int device, int seed = 0);
/// One of the above for each device.
std::vector<HostTensor> on_each(HostTensor input(const Shape&, int, int), const Shape& shape, int seed = 0);
/// This device's one of them.
inline const HostTensor& mine(const std::vector<HostTensor>& inputs) {
  return inputs[static_cast<std::size_t>(me())];
}
/// @}

/// \name Expected results
/// @{
HostTensor reduced(const std::vector<HostTensor>& addends, ReduceOp op);
HostTensor sliced(const HostTensor& t, int axis, Range range);
HostTensor joined(const std::vector<HostTensor>& parts, int axis);
HostTensor product(const HostTensor& a, const HostTensor& b);
/// @}

/// Empty when shapes and all elements are equal (−0 equals 0); otherwise the first difference.
std::string difference(const Tensor& given, const HostTensor& expected);

/// The shape with another extent along an axis.
Shape with(Shape shape, int axis, Index extent);

/// The Error that an action throws; code 0 if it throws none.
struct Refusal {
  int code = 0;
  std::string message;
};
Refusal refusal(const std::function<void()>& action);

/// The traffic of one action, and the most memory of collective buffers during it.
struct Measured {
  Traffic traffic;
  Traffic other_traffic;  ///< of any other collective
  Index buffer_bytes = 0;
  bool operator==(const Measured&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Measured& measured);
Measured measured(Collective collective, const std::function<void()>& action);

/// An engine without a strategy, for its collectives.
class PlainEngine : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;
  void load_checkpoint(const Checkpoint&) override {}
  Placed forward(Tensor x) override { return Replicated(group(), std::move(x)); }
  Gradients backward(Tensor) override { return {}; }
  Placement input_layout() const override { return Placement::replicated(); }
  Trainables trainable() override { return {}; }

  using ShardedEngine::load_replicated;
  using ShardedEngine::load_sharded;
};

/// An engine on this device, on the group under test.
PlainEngine& engine();

inline constexpr ReduceOp all_ops[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min,
                                       ReduceOp::prod};

/// Ranks 0 to 4. Extents of 0 and 1, below and above the number of devices, and one above MPI's eager limit.
inline const std::vector<Shape> shapes = {{},     {1},       {7},          {0},       {3, 5},
                                          {0, 4}, {2, 3, 4}, {3, 1, 2, 5}, {2, 0, 3}, {67, 41}};

}  // namespace shard::testing

namespace shard {
/// Prints traffic when an assertion fails.
std::ostream& operator<<(std::ostream& out, const Traffic& traffic);
}  // namespace shard
