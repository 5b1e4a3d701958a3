#pragma once

/// The part of the communicator that each backend implements: the bodies of the collectives, and some
/// functions about its device.
///
/// A body gets its operation. `o.tensor` is the argument at the beginning and the result at the end. The body
/// announces the call, awaits the agreement of all members, and moves the data. It may send before that. The
/// closed forms in chapters/engine/device/collective_costs.hpp say what each collective sends.

#include <optional>

#include "engine/device/runtime/axis_cuts.hpp"
#include "engine/device/runtime/call.hpp"
#include "engine/device/runtime/stream.hpp"

namespace shard::runtime {

/// Called once, before the first group is made.
void set_up_device();
/// Makes the backend's part of a new group. A collective of the group.
std::unique_ptr<DataPlane> make_data_plane(const Group& group);
/// Called when an operation starts. The operation must wait for all computation that was launched before.
std::unique_ptr<OnDevice> enter_device();
/// Returns when the device has done all work that was launched.
void finish_device();

/// Makes the buffer of a ring, with this number of elements.
Tensor ring_buffer_of(Index elements);
/// Makes the slices contiguous and stores them one behind the other, so that each can be sent without a copy.
/// Slices along axis 0 are contiguous already, so the tensor itself is returned. Else the copy is a buffer.
Tensor packed(Tensor&& t, int axis, const std::vector<Range>& slices);

/// `buffer` has room for the largest chunk.
Task all_reduce(Call call, Operation& o, ReduceOp op, Tensor buffer);
/// `slices`: where the devices' slices lie in the row that the tensor is, one behind the other. Mine is the
/// result. `buffer` has room for the largest.
Task reduce_scatter(Call call, Operation& o, ReduceOp op, std::vector<Range> slices, Tensor buffer);
/// `room`: memory for all slices, or none if their sizes were not known.
Task all_gather(Call call, Operation& o, int axis, Tensor room);
/// `mine` cuts the tensor along split_axis: part k is for device k.
Task all_to_all(Call call, Operation& o, int split_axis, int concat_axis, std::vector<Range> mine);
Task broadcast(Call call, Operation& o, int root);
Task barrier(Call call, Operation& o);
/// `src` and `dst` share the caller's memory.
Task send_async(Call call, Operation& o, Tensor src, Tensor dst, std::optional<int> target);
/// `to` and `from` are places in the group.
Task send(std::shared_ptr<Group> group, Operation& o, int to);
Task receive(std::shared_ptr<Group> group, Operation& o, int from);
Task post_send(std::shared_ptr<Group> group, Operation& o, int to);
/// The tensor has the shape that is expected.
Task post_receive(std::shared_ptr<Group> group, Operation& o, int from);

/// A message's shape as numbers, and back.
inline constexpr std::size_t most_shape_numbers = 1 + Header::most_axes;
std::vector<Index> numbers_of(const Shape& shape);
Shape shape_from(const std::vector<Index>& numbers);
/// Whom send_async receives from. \throws Error mismatch when targets are not distinct.
std::optional<int> source_of(const Call& call);
/// \throws Error mismatch when the shape that a device has sent is not that of `dst`.
void require_same_shape(const Call& call, int source, const Shape& dst);

/// What arrives in an all_to_all, from whom, and what it makes.
struct Arrivals {
  std::vector<Range> elements;  ///< of each device's part, one behind the other
  std::vector<Range> placed;    ///< where it goes along the axis of concatenation
  Shape result;
};

/// Device d sends me its tensor, cut down along split_axis to the part that it says is for me. The counts and
/// the agreement are complete.
Arrivals arrivals(Call& call, const Shape& mine, int split_axis, int concat_axis);

}  // namespace shard::runtime
