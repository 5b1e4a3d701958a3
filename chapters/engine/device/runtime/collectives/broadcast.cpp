/// broadcast: the root's tensor, on each member.

#include <fmt/format.h>

#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::runtime {

const Definition rows::broadcast = {
    .name = "broadcast",
    .details =
        [](const Request& r, const std::vector<int>& members) {
          return fmt::format(" from device {}", members[static_cast<std::size_t>(*r.peer)]);
        },
    .body = runtime::broadcast,
    .sent =
        [](const Call& call) {
          return tree_broadcast(call.tensor.size(), call.devices(), call.me(), call.peer());
        },
};

}  // namespace shard::runtime
