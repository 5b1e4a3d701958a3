#pragma once

/// The part of the communicator that each backend implements: the bodies of the collectives, and some
/// functions about its device.
///
/// A body gets its call. `call.tensor` is the argument at the beginning and the result at the end. The body
/// announces the call, awaits the agreement of all members, and moves the data. It may send before that. The
/// closed forms in chapters/engine/device/books/collective_costs.hpp say what each collective sends.

#include <optional>

#include "engine/device/runtime/operations/axis_cuts.hpp"
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

/// \name The bodies
/// @{
Task barrier(Call& call);
Task all_gather(Call& call);
/// `call.buffer` has room for the largest chunk.
Task all_reduce(Call& call);
/// `call.slices`: where the devices' slices lie in the row that the tensor is, one behind the other. Mine is the
/// result. `call.buffer` has room for the largest.
Task reduce_scatter(Call& call);
/// `call.slices` cuts the tensor along the request's axis: part k is for device k.
Task all_to_all(Call& call);
Task broadcast(Call& call);
/// From `call.tensor` to `call.request.into`. Each device announces its target.
Task send_async(Call& call);
/// Also of post_send.
Task send(Call& call);
/// Also of post_receive, where the tensor has the shape that is expected.
Task receive(Call& call);
/// @}

/// A message's shape as numbers, and back.
inline constexpr std::size_t most_axes = 32;
inline constexpr std::size_t most_shape_numbers = 1 + most_axes;
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
