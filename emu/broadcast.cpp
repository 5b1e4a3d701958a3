/// broadcast: a binomial tree of ceil(log2 n) levels. A device sends the tensor to each of its children, in one
/// message: n-1 messages over all devices.

#include "emu/messages.hpp"
#include "engine/device/runtime/collectives/collectives.hpp"
#include "engine/device/runtime/groups/tree.hpp"
#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard::runtime {

using namespace emu;

Task broadcast(Call& call) {
  Tensor& t = call.tensor;
  const int root = call.peer();
  const Tree tree(call.me(), call.devices(), root);
  auto send_to_children = [&] {
    for (int child : tree.children) send_values(call, child, TensorMemory::span(std::as_const(t)));
  };
  call.announce(MayDiffer::all());
  call.take_shape(tree, t.shape());
  if (call.me() == root) {
    call.pass_on_shape(tree);
    send_to_children();
  }
  co_await call.agreement();
  if (call.me() != root) {
    co_await call.messages();
    call.pass_on_shape(tree);
    t = TensorMemory::make(call.received_shape());
    receive_values(call, tree.parent, TensorMemory::span(t));
    co_await call.messages();
    send_to_children();
  }
  co_await call.messages();
}

}  // namespace shard::runtime
