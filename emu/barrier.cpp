/// barrier: empty messages up and down a binomial tree. A device sends one to its parent when its subtree has
/// arrived, and one to each child when all devices have: 2 (n-1) messages over all devices, 0 bytes.

#include "emu/messages.hpp"
#include "engine/device/runtime/collectives/collectives.hpp"
#include "engine/device/runtime/groups/tree.hpp"

namespace shard::runtime {

using namespace emu;

Task barrier(Call& call) {
  call.announce(MayDiffer::all());
  co_await call.agreement();
  Tree tree(call.me(), call.devices(), 0);
  for (int child : tree.children) receive_token(call, child);
  co_await call.messages();
  if (tree.parent >= 0) {
    send_token(call, tree.parent);
    receive_token(call, tree.parent);
    co_await call.messages();
  }
  for (int child : tree.children) send_token(call, child);
  co_await call.messages();
}

}  // namespace shard::runtime
