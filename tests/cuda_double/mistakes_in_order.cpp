// Mistakes with launches of several communicators, in orders that differ between devices.

#include <nccl.h>

#include <algorithm>
#include <cstring>

#include "mistakes.hpp"

using namespace shard;

namespace {

/// A communicator of these devices, with a stream and memory. Each of the devices makes it.
struct SubCommunicator {
  ncclComm_t comm = nullptr;
  cudaStream_t in = new_stream();
  float* data = memory();

  explicit SubCommunicator(const std::vector<int>& devices) {
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
    ncclCommInitRank(&comm, static_cast<int>(devices.size()), id, static_cast<int>(at - devices.begin()));
    clear(data, in);
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
  std::vector<SubCommunicator> all;
  for (const std::vector<int>& devices : communicators) all.emplace_back(devices);
  const std::vector<std::size_t>& mine = orders[static_cast<std::size_t>(group().device_id())];
  for (std::size_t c : mine) all[c].reduce();
  for (const SubCommunicator& each : all) each.finish();
}

}  // namespace

const std::vector<Case> mistakes_in_order = {
    {"two_communicators_in_two_orders",
     {2},
     70,
     {"communicators are used in different orders: process 1 launched ncclAllReduce"},
     [] {
       reduce_in_orders({{0, 1}, {1, 0}}, {{0, 1}, {1, 0}});
     }},
    {"three_communicators_in_a_circle",  // each two devices have the same order
     {3},
     70,
     {"communicators are used in different orders"},
     [] {
       reduce_in_orders({{0, 1}, {1, 2}, {2, 0}}, {{0, 2}, {1, 0}, {2, 1}});
     }},
    {"communicators_in_one_order", {3}, 0, {}, [] {
       reduce_in_orders({{0, 1}, {1, 2}, {2, 0}, {2, 0, 1}}, {{0, 2, 3}, {0, 1, 3}, {1, 2, 3}});
     }}};
