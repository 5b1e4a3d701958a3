#pragma once

/// What each function of a communicator is: a row of one table. The rows lie in files of their own, beside this one.
/// Their bodies lie in the backends.

#include <array>
#include <optional>

#include "engine/device/books/collective_costs.hpp"
#include "engine/device/runtime/call.hpp"
#include "engine/device/runtime/operations/axis_cuts.hpp"

namespace shard::runtime {

/// A function of a communicator. A backend's body moves the data; all else is the same on each of them.
struct Definition {
  std::string_view name;
  /// Behind the name in errors: " of (2, 3) along axis 1". `members`: the ids in the job. Null: nothing.
  std::string (*details)(const Request& request, const std::vector<int>& members) = nullptr;
  /// Makes buffers and slices, and counts messages, before the body begins. Null: nothing.
  void (*prepare)(Call& call) = nullptr;
  /// Turns `call.tensor` from the argument into the result: announces the call, awaits the agreement of all members (it
  /// may send before), and moves the data. Null for what the communicator does without a body.
  Task (*body)(Call& call) = nullptr;
  /// The closed form of what the call sends, for backends that do not count each message. Its slices must be known,
  /// and a broadcast's tensor. Null: no tensor data.
  Traffic (*sent)(const Call& call) = nullptr;
};

/// \name The bodies, in emu/ and emu/meta/ (cuda/nccl/ has others)
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
/// The body of send and of post_send.
Task send(Call& call);
/// The body of receive and of post_receive, whose tensor has the expected shape already.
Task receive(Call& call);
/// @}

namespace rows {
extern const Definition barrier, send, send_async, all_gather, all_reduce, reduce_scatter, all_to_all,
    broadcast, receive, post_send, post_receive, split, synchronize, exchange, gather, gather_for_all,
    verify_replicated;
}  // namespace rows

/// In the order of Collective.
inline constexpr std::array all_rows = {
    &rows::barrier,          &rows::send,           &rows::send_async,   &rows::all_gather,
    &rows::all_reduce,       &rows::reduce_scatter, &rows::all_to_all,   &rows::broadcast,
    &rows::receive,          &rows::post_send,      &rows::post_receive, &rows::split,
    &rows::synchronize,      &rows::exchange,       &rows::gather,       &rows::gather_for_all,
    &rows::verify_replicated};
inline const Definition& definition_of(Collective function) {
  return *all_rows[static_cast<std::size_t>(function)];
}

/// Books what the call sends, by its closed form.
void book(const Call& call);
Traffic message_of(const Tensor& t);
std::vector<Index> sizes_of(const std::vector<Range>& ranges);
/// Converts ranges of indices to ranges of elements, where each index has `of_one` elements.
std::vector<Range> scaled(std::vector<Range> ranges, Index of_one);

/// \name What prepares bodies, in the backends
/// @{
/// Makes the buffer of a ring, with this number of elements.
Tensor ring_buffer_of(Index elements);
/// Copies the slices to a buffer, each contiguous, in order, so that each can be sent as it lies. Along axis 0
/// slices are contiguous already, and the tensor itself is returned.
Tensor packed(Tensor&& t, int axis, const std::vector<Range>& slices);
/// @}

/// The slices that an all_gather joins, known when the members have agreed: ranges of the result's axis.
std::vector<Range> gathered_slices(const Call& call);
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
