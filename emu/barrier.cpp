/// barrier: up and down a binomial tree, with messages that have no content. A device sends one to its parent when
/// its subtree is there, and one to each child when all are: 2 (n-1) messages over all devices, 0 bytes.

#include "emu/collectives.hpp"
#include "emu/tree.hpp"

namespace shard::emu {

Task barrier(Call call) {
  co_await call.announce();
  call.require_agreement(MayDiffer::all());
  Tree tree(call.me(), call.devices(), 0);
  for (int child : tree.children) call.receive_token(child);
  co_await call.messages();
  if (tree.parent >= 0) {
    call.send_token(tree.parent);
    call.receive_token(tree.parent);
    co_await call.messages();
  }
  for (int child : tree.children) call.send_token(child);
  co_await call.messages();
}

}  // namespace shard::emu
