#pragma once

/// The part of the communicator that each backend implements: the bodies of calls, and functions of its device.
///
/// A body turns `call.tensor` from the argument into the result. It announces the call, awaits the agreement of
/// all members (it may send before), and moves the data. engine/device/books/collective_costs.hpp has closed
/// forms of what each collective sends.

#include <optional>

#include "engine/device/runtime/operations/axis_cuts.hpp"
#include "engine/device/runtime/stream.hpp"

namespace shard::runtime {

/// The communicator of a group. Also makes the backend's part of the group. A collective of the group.
std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Group> group);

/// Called once, before the first group is made.
void set_up_device();
/// Makes a new group's own way to send data, or null for the bodies below. A collective of the group.
std::unique_ptr<DataPlane> make_data_plane(const Group& group);
/// Called when a call starts. Its work must wait for all computation that was launched before.
std::unique_ptr<OnDevice> enter_device(const Call& call);
/// Returns when the device has done all launched work.
void finish_device();

/// Makes the buffer of a ring, with this number of elements.
Tensor ring_buffer_of(Index elements);
/// Copies the slices to a buffer, each contiguous, in order, so that each can be sent as it lies. Along axis 0
/// slices are contiguous already, and the tensor itself is returned.
Tensor packed(Tensor&& t, int axis, const std::vector<Range>& slices);

/// The body of the call's function: one of those below.
Task body_of(Call& call);
/// \name The bodies
/// @{
Task barrier(Call& call);
Task all_gather(Call& call);
/// `call.buffer` has room for the largest chunk.
Task all_reduce(Call& call);
/// The tensor is a vector of all devices' slices, which lie at `call.slices`. This device's slice is the result.
/// `call.buffer` has room for the largest.
Task reduce_scatter(Call& call);
/// `call.slices` cuts the tensor along the request's axis: part k is for device k.
Task all_to_all(Call& call);
Task broadcast(Call& call);
/// Copies `call.tensor` to the target's `call.request.into`. Each device announces its target.
Task send_async(Call& call);
/// Also of post_send.
Task send(Call& call);
/// Also of post_receive, whose tensor has the expected shape already.
Task receive(Call& call);
/// @}

/// A message's shape as numbers, and back.
inline constexpr std::size_t most_axes = 32;
inline constexpr std::size_t most_shape_numbers = 1 + most_axes;
std::vector<Index> numbers_of(const Shape& shape);
Shape shape_from(const std::vector<Index>& numbers);
/// The member whose target in a send_async is this device. \throws Error mismatch when targets are not distinct.
std::optional<int> source_of(const Call& call);
/// \throws Error mismatch when the shape that `source` has sent is not that of `dst`.
void require_same_shape(const Call& call, int source, const Shape& dst);

/// The parts that this device receives in an all_to_all, by sender, and its result.
struct Arrivals {
  std::vector<Range> elements;  ///< each part's elements, in the order of senders
  std::vector<Range> placed;    ///< each part's indices along concat_axis in the result
  Shape result;
};

/// `mine` is the shape of this device's argument. Call it when the counts and the agreement are complete.
Arrivals arrivals(Call& call, const Shape& mine, int split_axis, int concat_axis);

}  // namespace shard::runtime
