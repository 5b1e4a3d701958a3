/// all_reduce: the reduction of all members' tensors, on each of them.

#include <fmt/format.h>

#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::runtime {

const Definition rows::all_reduce = {
    .name = "all_reduce",
    .details =
        [](const Request& r, const std::vector<int>&) {
          return fmt::format("({}) of {}", name(*r.op), to_string(r.shape));
        },
    .prepare =
        [](Call& call) { call.buffer = ring_buffer_of(ring_buffer(call.tensor.size(), call.devices())); },
    .body = runtime::all_reduce,
    .sent = [](const Call& call) { return ring_all_reduce(call.tensor.size(), call.devices(), call.me()); },
};

}  // namespace shard::runtime
