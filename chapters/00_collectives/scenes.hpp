#pragma once

/// Collectives and messages, one scene each: make a tensor, draw it, call, draw again; then what must have come
/// out, and what each device must have sent. There are n devices in the group; this one is `me`.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "numbers.hpp"

namespace shard::primer {

/// Milliseconds of the day's clock.
inline Index now() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

/// ## barrier
inline void barrier(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  scene.tells(
      "group.barrier()",
      "Returns when every device has reached it; here device d comes 30 d ms late. Moves no data. Training "
      "seldom needs one, since every collective waits for its data anyway; measuring time does.");
  std::this_thread::sleep_for(std::chrono::milliseconds(30 * me));
  const Index came = now();
  group.barrier();
  const Index went = now();
  const Index first = std::ranges::min(group.exchange("the first to come", came));
  scene.writes("came after", fmt::format("{} ms", came - first));
  scene.writes("left after", fmt::format("{} ms", went - first));
  scene.sends("up and down a binomial tree: 2(n-1) empty messages in all", tree_barrier(n, me));
}

/// ## send, receive
inline void send_receive(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  scene.tells(
      "group.send(dest, t)   and   t = group.receive(src)",
      "From one device to one other; each waits for the other. Here device d receives from d-1, adds its own "
      "numbers and sends the sums on to d+1, as activations pass through the stages of a pipeline.");
  Tensor t = addends(group, 2);  // (2, 1)
  scene.draws("before", t, Ink::addends);
  if (me > 0) t = add(group.receive(me - 1), t);  // (2, 1)
  if (me + 1 < n) group.send(me + 1, t);
  scene.draws("after", t, Ink::addends);
  scene.expects(t, {2, 1}, [&](Index i, Index) { return sum_of_addends(i, me + 1, n); });
  scene.sends("one message from everyone but the last", me + 1 < n ? Traffic{1, t.bytes()} : Traffic{});
}

/// ## send_async
inline void send_async(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  scene.tells(
      "group.send_async(src, dst, target).wait()",
      "Everybody names a target, or none: my src is copied into my target's dst. As sending and receiving "
      "are one call, a ring of devices cannot get stuck in it, as it can in send and receive.");
  Tensor src = numbered(group, {1, 3});  // (1, 3)
  Tensor dst({1, 3});                    // (1, 3)  zeros
  scene.draws("src", src);
  group.send_async(src, dst, (me + 1) % n).wait();
  scene.draws("dst", dst);
  scene.expects(dst, {1, 3}, [&](Index, Index j) { return 10 * ((me + n - 1) % n) + j; });
  scene.sends("one message each; a copy to oneself is none", n > 1 ? Traffic{1, src.bytes()} : Traffic{});
}

/// ## broadcast
inline void broadcast(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id(), root = 1 % n;
  scene.tells(
      fmt::format("group.broadcast_async(t, {}).get()", root),
      fmt::format("The root's tensor, here device {}'s, on every device. This is how the one device that has "
                  "something, as the last stage of a pipeline has the output, gives it to all.",
                  root));
  Tensor t = me == root ? numbered(group, {1, 3}) : Tensor();  // (1, 3) on the root
  scene.draws("before", t);
  t = group.broadcast_async(std::move(t), root).get();  // (1, 3)
  scene.draws("after", t);
  scene.expects(t, {1, 3}, [&](Index, Index j) { return 10 * root + j; });
  scene.sends("binomial tree: who has it passes it on, in ceil(log2 n) rounds; n-1 messages in all",
              tree_broadcast(3, n, me, root));
}

/// ## all_gather
inline void all_gather(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  scene.tells("group.all_gather_async(t, 0).get()",
              "Everybody's slices, one behind the other along an axis, on every device. Fully sharded "
              "training gathers a layer's parameters this way, just before it needs them.");
  Tensor t = numbered(group, {1, 3});  // (1, 3)
  scene.draws("before", t);
  t = group.all_gather_async(std::move(t), 0).get();  // (n, 3)
  scene.draws("after", t);
  scene.expects(t, {n, 3}, [](Index i, Index j) { return 10 * i + j; });
  scene.sends("ring: n-1 messages, every slice but my right neighbour's",
              ring_all_gather(slices(n, 3, n), me));
}

/// ## reduce_scatter
inline void reduce_scatter(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  scene.tells("group.reduce_scatter_async(t, ReduceOp::sum, 0).get()",
              "The sum over the devices, of which each keeps its slice. Fully sharded training sums "
              "gradients this way, since each device updates only its slice of the parameters.");
  Tensor t = addends(group, n);  // (n, 1)
  scene.draws("before", t, Ink::addends);
  t = group.reduce_scatter_async(std::move(t), ReduceOp::sum, 0).get();  // (1, 1)
  scene.draws("after", t, Ink::addends);
  scene.expects(t, {1, 1}, [&](Index, Index) { return sum_of_addends(me, n, n); });
  scene.sends("ring: n-1 messages, every slice but my own", ring_reduce_scatter(slices(n, 1, n), me));
}

/// ## all_reduce
inline void all_reduce(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  scene.tells(
      "group.all_reduce_async(t, ReduceOp::sum).get()",
      "The sum over the devices, on every device: a reduce_scatter, then an all_gather of the slices. Data "
      "parallel training sums weight gradients with it, tensor parallel layers their partial outputs.");
  Tensor t = addends(group, n);  // (n, 1)
  scene.draws("before", t, Ink::addends);
  t = group.all_reduce_async(std::move(t), ReduceOp::sum).get();  // (n, 1)
  scene.draws("after", t, Ink::addends);
  scene.expects(t, {n, 1}, [&](Index i, Index) { return sum_of_addends(i, n, n); });
  scene.sends("ring: 2(n-1) messages, in all 2(n-1)/n of the tensor", ring_all_reduce(n, n, me));
}

/// ## split
/// Two groups of devices out of one, and a collective in each.
inline void split(Communicator& group, Scene& scene) {
  const int n = group.num_devices(), me = group.device_id();
  scene.tells(
      "half = group.split(/*color=*/me % 2, /*key=*/me) then half->all_reduce_async(t, ReduceOp::sum).get()",
      "Devices that pass the same color form a group of their own, in the order of their keys: here the even "
      "devices one, the odd devices the other. In its group a device has a new number, from 0 on. Each group "
      "sums its own addends; the other group does not take part.");
  const std::unique_ptr<Communicator> half = group.split(me % 2, me);
  scene.writes("group", fmt::format("{{{}}}", fmt::join(half->members(), ", ")));
  scene.writes("new number", fmt::to_string(half->device_id()));
  Tensor t = addends(group, n);  // (n, 1)
  scene.draws("before", t, Ink::addends);
  t = half->all_reduce_async(std::move(t), ReduceOp::sum).get();  // (n, 1)
  scene.draws("after", t, Ink::addends);
  scene.expects(t, {n, 1}, [&](Index i, Index) {
    Index sum = 0;
    for (int d = me % 2; d < n; d += 2) sum += addend(i, d, n);
    return sum;
  });
  scene.sends("ring of the p devices of a group: 2(p-1) messages, in all 2(p-1)/p of the tensor",
              ring_all_reduce(n, (n + 1 - me % 2) / 2, me / 2));
}

}  // namespace shard::primer
