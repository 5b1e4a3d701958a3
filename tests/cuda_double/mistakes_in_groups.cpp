// Mistakes with communicators and groups.

#include <nccl.h>

#include <cstring>

#include "mistakes.hpp"

using namespace shard;

namespace {

/// A communicator of all devices, with memory and a stream to use it.
struct WorldCommunicator {
  ncclComm_t comm;
  cudaStream_t in = new_stream();
  float* data = memory(64);

  WorldCommunicator() {
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

const std::vector<Case> mistakes_in_groups = {
    {"group_closed_but_not_opened", {1}, 70, {"ncclGroupEnd without ncclGroupStart"}, [] { ncclGroupEnd(); }},
    {"wrong_count",
     {2},
     70,
     {"calls that do not fit: ncclAllReduce of"},
     [] {
       WorldCommunicator t;
       ncclAllReduce(t.data, t.data, me() == 1 ? 4 : 5, ncclFloat, ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"wrong_type",
     {2},
     70,
     {"of type 2"},
     [] {
       WorldCommunicator t;
       ncclAllReduce(t.data, t.data, 4, me() == 1 ? ncclInt32 : ncclFloat, ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"wrong_operation",
     {2},
     70,
     {"operation 2"},
     [] {
       WorldCommunicator t;
       ncclAllReduce(t.data, t.data, 4, ncclFloat, me() == 1 ? ncclMax : ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"wrong_call",
     {2},
     70,
     {"ncclAllGather of 4"},
     [] {
       WorldCommunicator t;
       if (me() == 1) ncclAllGather(t.data, t.data + 32, 4, ncclFloat, t.comm, t.in);
       if (me() != 1) ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"wrong_root",
     {3},
     70,
     {": ncclBroadcast of 4 elements"},  // no receiver, or no message: either error may come first
     [] {
       WorldCommunicator t;
       ncclBroadcast(t.data, t.data, 4, ncclFloat, me() == 2 ? 0 : 1, t.comm, t.in);
       t.finish();
     }},
    {"swapped_peer",  // all should send to the right: rank 2 waits for rank 1, which waits for rank 0
     {3},
     70,
     {": ncclSend or ncclRecv"},  // of hosts that wait, or of 4 elements: either error may come first
     [] {
       WorldCommunicator t;
       ncclGroupStart();
       ncclSend(t.data, 4, ncclFloat, (me() + (me() == 1 ? 2 : 1)) % 3, t.comm, t.in);
       ncclRecv(t.data + 8, 4, ncclFloat, (me() + 2) % 3, t.comm, t.in);
       ncclGroupEnd();
       t.finish();
     }},
    {"peer_that_is_not_there",
     {3},
     70,
     {"no rank 3"},
     [] {
       WorldCommunicator t;
       ncclSend(t.data, 4, ncclFloat, 3, t.comm, t.in);
     }},
    {"nobody_receives",
     {2},
     70,
     {"nobody receives: ncclSend"},
     [] {
       WorldCommunicator t;
       for (int sent = 0; sent < 2; ++sent)
         if (me() == 0) ncclSend(t.data, 4, ncclFloat, 1, t.comm, t.in);
       if (me() == 1) ncclRecv(t.data, 4, ncclFloat, 0, t.comm, t.in);
       t.finish();
     }},
    {"both_send_first",  // without a group, each waits for the other's receive
     {2},
     70,
     {"ncclSend or ncclRecv: the host waits for a device that does not come"},
     [] {
       WorldCommunicator t;
       ncclSend(t.data, 4, ncclFloat, 1 - me(), t.comm, t.in);
       ncclRecv(t.data + 8, 4, ncclFloat, 1 - me(), t.comm, t.in);
       t.finish();
     }},
    {"calls_of_a_group_in_another_order",
     {2},
     70,
     {"in place 2 here and ncclBroadcast of 4"},
     [] {
       WorldCommunicator t;
       ncclGroupStart();
       for (int root : {me(), 1 - me()})
         ncclBroadcast(t.data, t.data + 8 * (root + 1), 4, ncclFloat, root, t.comm, t.in);
       ncclGroupEnd();
       t.finish();
     }},
    {"result_on_a_part_of_its_source",
     {2},
     70,
     {"ncclAllGather: the result lies on a part of the source"},
     [] {
       WorldCommunicator t;
       ncclAllGather(t.data + 2, t.data, 4, ncclFloat, t.comm, t.in);
     }},
    {"two_calls_of_a_group_write_one_place",
     {2},
     70,
     {"two calls of a group use the same memory"},
     [] {
       WorldCommunicator t;
       ncclGroupStart();
       for (int root : {0, 1}) ncclBroadcast(t.data, t.data + 8 + root, 4, ncclFloat, root, t.comm, t.in);
       ncclGroupEnd();
     }},
    {"waits_in_an_open_group",
     {2},
     70,
     {"in an open group"},
     [] {
       WorldCommunicator t;
       ncclGroupStart();
       ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
       t.finish();
     }},
    {"communicator_destroyed_while_in_use",
     {2},
     70,
     {"ncclCommDestroy while its calls may be on their way"},
     [] {
       WorldCommunicator t;
       ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
       ncclCommDestroy(t.comm);
     }},
    {"communicator_used_after_it_was_destroyed", {2}, 70, {"not one of communicators"}, [] {
       WorldCommunicator t;
       ncclCommDestroy(t.comm);
       ncclAllReduce(t.data, t.data, 4, ncclFloat, ncclSum, t.comm, t.in);
     }}};
