#pragma once

/// The bodies of the collectives, one file each. `n` is the number of devices; `t` the argument on entry and the
/// result at the end; its operation owns it. What each sends is in chapters/engine/costs.hpp as a closed form.

#include "emu/call.hpp"
#include "emu/slices.hpp"
#include "emu/stream.hpp"

namespace shard::emu {

/// `buffer` has room for the largest chunk.
Task all_reduce(Call call, Tensor& t, ReduceOp op, Tensor buffer);
/// `slices`: where the devices' slices lie in `row`, one behind the other. Mine is the result. `buffer` has
/// room for the largest.
Task reduce_scatter(Call call, Tensor& row, ReduceOp op, std::vector<Range> slices, Tensor buffer);
Task all_gather(Call call, Tensor& t, int axis);
/// `mine` cuts t along split_axis: part k is for device k.
Task all_to_all(Call call, Tensor& t, int split_axis, int concat_axis, std::vector<Range> mine);
Task broadcast(Call call, Tensor& t, int root);
Task barrier(Call call);
/// `src` and `dst` share the caller's memory.
Task send_async(Call call, Tensor src, Tensor dst, std::optional<int> target);
Task send(const Tensor& t, int to, bool leave_out);
Task receive(Tensor& t, int from, bool leave_out);
Task post_send(const Tensor& t, int to, bool leave_out);
/// `t` has the shape that is expected.
Task post_receive(Tensor& t, int from, bool leave_out);
Task exchange(Call call, std::vector<Index>& numbers);

}  // namespace shard::emu
