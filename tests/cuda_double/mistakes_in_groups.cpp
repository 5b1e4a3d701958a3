// Mistakes with communicators and groups.

#include <nccl.h>

#include <cstring>

#include "mistakes.hpp"

using namespace shard;

namespace {

int me() {
  return group().device_id();
}

/// A communicator of all devices, and memory and a queue to use it with.
struct Together {
  ncclComm_t comm;
  cudaStream_t in = queue();
  float* data = memory(64);

  Together() {
    ncclUniqueId id{};
    if (me() == 0) ncclGetUniqueId(&id);
    for (std::size_t i = 0; i < sizeof id.internal; i += sizeof(Index)) {
      Index word;
      std::memcpy(&word, id.internal + i, sizeof word);
      word = group().exchange("id", word)[0];
      std::memcpy(id.internal + i, &word, sizeof word);
    }
    ncclCommInitRank(&comm, group().num_devices(), id, me());
    cudaMemsetAsync(data, 0, 64 * sizeof(float), in);
  }
  void finish() { cudaStreamSynchronize(in); }
};

}  // namespace

const Cases mistakes_in_groups = {
    {"group_closed_but_not_opened", [] { ncclGroupEnd(); }},
    {"wrong_count",
     [] {
       Together t;
       ncclAllReduce(t.data, t.data, me() == 1 ? 4 : 5, ncclFloat, ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"wrong_type",
     [] {
       Together t;
       ncclAllReduce(t.data, t.data, 4, me() == 1 ? ncclInt32 : ncclFloat, ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"wrong_operation",
     [] {
       Together t;
       ncclAllReduce(t.data, t.data, 4, ncclFloat, me() == 1 ? ncclMax : ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"wrong_call",
     [] {
       Together t;
       if (me() == 1) ncclAllGather(t.data, t.data + 32, 4, ncclFloat, t.comm, t.in);
       if (me() != 1) ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"wrong_root",
     [] {
       Together t;
       ncclBroadcast(t.data, t.data, 4, ncclFloat, me() == 2 ? 0 : 1, t.comm, t.in);
       t.finish();
     }},
    {"swapped_peer",  // everybody should send to the right
     [] {
       Together t;
       ncclGroupStart();
       ncclSend(t.data, 4, ncclFloat, (me() + (me() == 1 ? 2 : 1)) % 3, t.comm, t.in);
       ncclRecv(t.data + 8, 4, ncclFloat, (me() + 2) % 3, t.comm, t.in);
       ncclGroupEnd();
       t.finish();
     }},
    {"peer_that_is_not_there",
     [] {
       Together t;
       ncclSend(t.data, 4, ncclFloat, 3, t.comm, t.in);
     }},
    {"nobody_receives",
     [] {
       Together t;
       if (me() == 0) ncclSend(t.data, 4, ncclFloat, 1, t.comm, t.in);
       t.finish();
     }},
    {"both_send_first",  // not in a group: each waits for the other's receive
     [] {
       Together t;
       ncclSend(t.data, 4, ncclFloat, 1 - me(), t.comm, t.in);
       ncclRecv(t.data + 8, 4, ncclFloat, 1 - me(), t.comm, t.in);
       t.finish();
     }},
    {"calls_of_a_group_in_another_order",
     [] {
       Together t;
       ncclGroupStart();
       for (int root : {me(), 1 - me()})
         ncclBroadcast(t.data, t.data + 8 * (root + 1), 4, ncclFloat, root, t.comm, t.in);
       ncclGroupEnd();
       t.finish();
     }},
    {"result_on_a_part_of_its_source",
     [] {
       Together t;
       ncclAllGather(t.data + 2, t.data, 4, ncclFloat, t.comm, t.in);
     }},
    {"two_calls_of_a_group_write_one_place",
     [] {
       Together t;
       ncclGroupStart();
       for (int root : {0, 1}) ncclBroadcast(t.data, t.data + 8 + root, 4, ncclFloat, root, t.comm, t.in);
       ncclGroupEnd();
     }},
    {"waits_in_an_open_group",
     [] {
       Together t;
       ncclGroupStart();
       ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"communicator_destroyed_while_in_use",
     [] {
       Together t;
       ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
       ncclCommDestroy(t.comm);
     }},
    {"communicator_used_after_it_was_destroyed", [] {
       Together t;
       ncclCommDestroy(t.comm);
       ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
     }}};
