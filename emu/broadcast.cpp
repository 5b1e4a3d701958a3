/// broadcast: a binomial tree. In ceil(log2 n) rounds the devices that have the tensor pass it on; a device
/// sends one message with the whole tensor to each of its children in the tree, n-1 messages over all
/// devices.

#include "backend/collectives.hpp"
#include "emu/memory.hpp"
#include "emu/messages.hpp"
#include "emu/tree.hpp"

namespace shard::backend {

using namespace emu;

Task broadcast(Call call, Operation& o, int root) {
  Tensor& t = o.tensor;
  co_await call.announce();
  call.require_agreement(MayDiffer::all());
  Tree tree(call.me(), call.devices(), root);
  if (tree.parent >= 0) {
    t = Backend::make(call.said_by(root).shape);
    receive_values(call, tree.parent, Backend::span(t));
    co_await call.messages();
  }
  for (int child : tree.children) send_values(call, child, Backend::span(std::as_const(t)));
  co_await call.messages();
}

}  // namespace shard::backend
