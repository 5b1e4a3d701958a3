// Mistakes with communicators and groups, and launches of several communicators in orders that differ between devices.

#include <cublas_v2.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "mistakes.hpp"

using namespace shard;

namespace {

/// A communicator of these devices, with a stream and memory. Each of the devices makes it.
struct Made {
  ncclComm_t comm = nullptr;
  cudaStream_t in = new_stream();
  float* data = memory(64);

  explicit Made(const std::vector<int>& devices, int multiprocessors = 32) {
    const int me = group().device_id();
    ncclUniqueId id{};
    if (me == devices[0]) ncclGetUniqueId(&id);
    for (std::size_t i = 0; i < sizeof id.internal; i += sizeof(Index)) {
      Index word;
      std::memcpy(&word, id.internal + i, sizeof word);
      word = group().exchange("id", word)[static_cast<std::size_t>(devices[0])];
      std::memcpy(id.internal + i, &word, sizeof word);
    }
    const auto at = std::ranges::find(devices, me);
    if (at == devices.end()) return;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.maxCTAs = multiprocessors;
    ncclCommInitRankConfig(&comm, static_cast<int>(devices.size()), id,
                           static_cast<int>(at - devices.begin()), &config);
    cudaMemsetAsync(data, 0, 64 * sizeof(float), in);
  }
  void reduce() const { ncclAllReduce(data, data, 4, ncclFloat, ncclSum, comm, in); }
  void finish() const {
    cudaStreamSynchronize(in);
    if (comm != nullptr) ncclCommDestroy(comm);
    cudaStreamDestroy(in);
    cudaFree(data);
  }
};

/// Each device launches reductions in the order given, on communicators in streams of their own.
void reduce_in_orders(const std::vector<std::vector<int>>& communicators,
                      const std::vector<std::vector<std::size_t>>& orders) {
  std::vector<Made> all;
  for (const std::vector<int>& devices : communicators) all.emplace_back(devices);
  const std::vector<std::size_t>& mine = orders[static_cast<std::size_t>(group().device_id())];
  for (std::size_t c : mine) all[c].reduce();
  for (const Made& each : all) each.finish();
}

/// A mistake with a communicator of all devices.
Case caught_on_all(std::string name, int devices, std::string says, void (*mistake)(Made&)) {
  return caught(std::move(name), devices, std::move(says), [mistake] {
    std::vector<int> all(static_cast<std::size_t>(group().num_devices()));
    std::iota(all.begin(), all.end(), 0);
    Made made(all);
    mistake(made);
    cudaStreamSynchronize(made.in);
  });
}

/// A call in which the driver waits for the GPU, which waits for something that the host would have to do.
Case caught_waiting(std::string name, const std::string& call, const std::function<void()>& action) {
  return caught(std::move(name), 1, call + ": the host waits for a device that does not come", [action] {
    cuda_double::add_work(new_stream(), "a kernel without an end", {}, [] { return false; });
    action();
    std::_Exit(0);  // it has not waited
  });
}

/// Device 0 receives from device 1 on five communicators. Their kernels wait, since device 1 sends nothing.
void wait_for_five_messages(int multiprocessors) {
  using namespace std::chrono_literals;
  std::vector<Made> links;
  for (int link = 0; link < 5; ++link) links.emplace_back(std::vector{0, 1}, multiprocessors);
  for (int message : {0, 1}) {  // the first one connects them
    if (message == 1 && me() == 1) std::this_thread::sleep_for(500ms);
    for (const Made& link : links)
      if (me() == 0)
        ncclRecv(link.data, 1, ncclFloat, 1, link.comm, link.in);
      else
        ncclSend(link.data, 1, ncclFloat, 0, link.comm, link.in);
  }
  for (const Made& link : links) link.finish();
}

}  // namespace

const std::vector<Case> mistakes_in_groups = {
    caught("group_closed_but_not_opened", 1, "ncclGroupEnd without ncclGroupStart", [] { ncclGroupEnd(); }),
    caught_on_all(
        "wrong_count", 2, "calls that do not fit: ncclAllReduce of",
        [](Made& t) { ncclAllReduce(t.data, t.data, me() == 1 ? 4 : 5, ncclFloat, ncclSum, t.comm, t.in); }),
    caught_on_all("wrong_type", 2, "of type 2",
                  [](Made& t) {
                    ncclAllReduce(t.data, t.data, 4, me() == 1 ? ncclInt32 : ncclFloat, ncclSum, t.comm,
                                  t.in);
                  }),
    caught_on_all("wrong_operation", 2, "operation 2",
                  [](Made& t) {
                    ncclAllReduce(t.data, t.data, 4, ncclFloat, me() == 1 ? ncclMax : ncclSum, t.comm, t.in);
                  }),
    caught_on_all("wrong_call", 2, "ncclAllGather of 4",
                  [](Made& t) {
                    if (me() == 1) ncclAllGather(t.data, t.data + 32, 4, ncclFloat, t.comm, t.in);
                    if (me() != 1) ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
                  }),
    // No receiver, or no message: either error may come first.
    caught_on_all(
        "wrong_root", 3, ": ncclBroadcast of 4 elements",
        [](Made& t) { ncclBroadcast(t.data, t.data, 4, ncclFloat, me() == 2 ? 0 : 1, t.comm, t.in); }),
    // All should send to the right: rank 2 waits for rank 1, which waits for rank 0.
    // Of hosts that wait, or of 4 elements: either error may come first.
    caught_on_all("swapped_peer", 3, ": ncclSend or ncclRecv",
                  [](Made& t) {
                    ncclGroupStart();
                    ncclSend(t.data, 4, ncclFloat, (me() + (me() == 1 ? 2 : 1)) % 3, t.comm, t.in);
                    ncclRecv(t.data + 8, 4, ncclFloat, (me() + 2) % 3, t.comm, t.in);
                    ncclGroupEnd();
                  }),
    caught_on_all("peer_that_is_not_there", 3, "no rank 3",
                  [](Made& t) { ncclSend(t.data, 4, ncclFloat, 3, t.comm, t.in); }),
    caught_on_all("nobody_receives", 2, "nobody receives: ncclSend",
                  [](Made& t) {
                    for (int sent = 0; sent < 2; ++sent)
                      if (me() == 0) ncclSend(t.data, 4, ncclFloat, 1, t.comm, t.in);
                    if (me() == 1) ncclRecv(t.data, 4, ncclFloat, 0, t.comm, t.in);
                  }),
    // Without a group, each waits for the other's receive.
    caught_on_all("both_send_first", 2,
                  "ncclSend or ncclRecv: the host waits for a device that does not come",
                  [](Made& t) {
                    ncclSend(t.data, 4, ncclFloat, 1 - me(), t.comm, t.in);
                    ncclRecv(t.data + 8, 4, ncclFloat, 1 - me(), t.comm, t.in);
                  }),
    caught_on_all("calls_of_a_group_in_another_order", 2, "in place 2 here and ncclBroadcast of 4",
                  [](Made& t) {
                    ncclGroupStart();
                    for (int root : {me(), 1 - me()})
                      ncclBroadcast(t.data, t.data + 8 * (root + 1), 4, ncclFloat, root, t.comm, t.in);
                    ncclGroupEnd();
                  }),
    caught_on_all("result_on_a_part_of_its_source", 2,
                  "ncclAllGather: the result lies on a part of the source",
                  [](Made& t) { ncclAllGather(t.data + 2, t.data, 4, ncclFloat, t.comm, t.in); }),
    caught_on_all("two_calls_of_a_group_write_one_place", 2, "two calls of a group use the same memory",
                  [](Made& t) {
                    ncclGroupStart();
                    for (int root : {0, 1})
                      ncclBroadcast(t.data, t.data + 8 + root, 4, ncclFloat, root, t.comm, t.in);
                    ncclGroupEnd();
                  }),
    caught_on_all("waits_in_an_open_group", 2, "in an open group",
                  [](Made& t) {
                    ncclGroupStart();
                    ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
                  }),
    caught_on_all("communicator_destroyed_while_in_use", 2,
                  "ncclCommDestroy while its calls may be on their way",
                  [](Made& t) {
                    ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
                    ncclCommDestroy(t.comm);
                  }),
    caught_on_all("communicator_used_after_it_was_destroyed", 2, "not one of communicators",
                  [](Made& t) {
                    ncclCommDestroy(t.comm);
                    ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
                  }),
    caught_waiting("frees_memory_while_the_gpu_waits", "cudaFree", [] { cudaFree(memory()); }),
    caught_waiting("frees_page_locked_memory_while_the_gpu_waits", "cudaFreeHost",
                   [] {
                     void* data;
                     cudaMallocHost(&data, 8);
                     cudaFreeHost(data);
                   }),
    caught_waiting("makes_a_handle_while_the_gpu_waits", "cublasCreate",
                   [] {
                     cublasHandle_t blas;
                     cublasCreate(&blas);
                   }),
    caught_waiting("makes_a_communicator_while_the_gpu_waits", "ncclCommInitRank of 1",
                   [] {
                     ncclUniqueId id;
                     ncclGetUniqueId(&id);
                     ncclComm_t alone;
                     ncclCommInitRank(&alone, 1, id, 0);
                   }),
    caught("five_messages_occupy_the_whole_gpu", 2, "calls in flight need 160 multiprocessors of 132",
           [] { wait_for_five_messages(32); }),
    accepted("five_messages_on_few_multiprocessors", 2, [] { wait_for_five_messages(4); }),
    caught("two_communicators_in_two_orders", 2,
           "communicators are used in different orders: process 1 launched ncclAllReduce",
           [] {
             reduce_in_orders({{0, 1}, {1, 0}}, {{0, 1}, {1, 0}});
           }),
    // Each two devices have the same order.
    caught("three_communicators_in_a_circle", 3, "communicators are used in different orders",
           [] {
             reduce_in_orders({{0, 1}, {1, 2}, {2, 0}}, {{0, 2}, {1, 0}, {2, 1}});
           }),
    accepted("communicators_in_one_order", 3, [] {
      reduce_in_orders({{0, 1}, {1, 2}, {2, 0}, {2, 0, 1}}, {{0, 2, 3}, {0, 1, 3}, {1, 2, 3}});
    })};
