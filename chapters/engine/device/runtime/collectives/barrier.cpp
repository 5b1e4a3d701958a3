/// barrier: ends when all members have begun it.

#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::runtime {

const Definition rows::barrier = {
    .name = "barrier",
    .body = runtime::barrier,
    .sent = [](const Call& call) { return tree_barrier(call.devices(), call.me()); },
};

}  // namespace shard::runtime
