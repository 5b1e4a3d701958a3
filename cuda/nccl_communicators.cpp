#include "cuda/nccl_communicators.hpp"

#include <fmt/format.h>

#include <map>

#include "cuda/success.hpp"

namespace shard::cuda {

using runtime::control;

namespace {

struct Wires {
  Wire all;
  std::map<int, Pair> pairs;
};

/// Never destroyed, as the GPU is not.
Wires& wires() {
  static auto* instance = new Wires;
  return *instance;
}

constexpr int id_tag = runtime::num_channels;  // beside those of the control messages

Wire connect(const ncclUniqueId& id, int devices, int place, cudaStream_t queue) {
  Wire wire{nullptr, queue};
  SHARDBOOK_CHECK(ncclCommInitRank(&wire.comm, devices, id, place));
  return wire;
}

/// All wires that there are.
template <class Action>
void for_each_wire(const Action& action) {
  if (wires().all.comm != nullptr) action(wires().all);
  for (auto& [peer, pair] : wires().pairs)
    if (Wire* wire = pair.made_wire()) action(*wire);
}

}  // namespace

Wire& wire_to_all() {
  return wires().all;
}

void make_wire_to_all() {
  ncclUniqueId id;
  if (control().device_id() == 0) SHARDBOOK_CHECK(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, control().comm());
  wires().all = connect(id, control().num_devices(), control().device_id(), gpu().communication());
}

Pair::Pair(int peer) : peer_(peer) {}

bool Pair::gives_places() const {
  return control().device_id() < peer_;
}

cudaStream_t Pair::queue() {
  if (wire_.queue == nullptr) wire_.queue = new_queue();
  return wire_.queue;
}

/// The higher one of the two comes here when the lower one has told it its place, so whoever waits here waits
/// for a higher one: never in a circle.
Wire& Pair::wire() {
  if (wire_.comm != nullptr) return wire_;
  ncclUniqueId id;
  if (gives_places()) {
    SHARDBOOK_CHECK(ncclGetUniqueId(&id));
    MPI_Send(&id, sizeof id, MPI_BYTE, peer_, id_tag, control().comm());
  } else {
    MPI_Recv(&id, sizeof id, MPI_BYTE, peer_, id_tag, control().comm(), MPI_STATUS_IGNORE);
  }
  wire_ = connect(id, 2, gives_places() ? 0 : 1, queue());
  return wire_;
}

void Pair::close() {
  if (wire_.comm != nullptr) ncclCommDestroy(wire_.comm);
  if (wire_.queue != nullptr) cudaStreamDestroy(wire_.queue);
}

Pair& pair_with(int peer) {
  return wires().pairs.try_emplace(peer, peer).first->second;
}

Passage& passage_of(runtime::Operation& o) {
  return static_cast<Passage&>(*o.on_device);
}

Group::Group() {
  SHARDBOOK_CHECK(ncclGroupStart());
}

Group::~Group() noexcept(false) {
  const ncclResult_t result = ncclGroupEnd();
  if (std::uncaught_exceptions() == 0) SHARDBOOK_CHECK(result);
}

void check_wires() {
  ncclResult_t worst = ncclSuccess;
  for_each_wire([&](Wire& wire) {
    ncclResult_t state = ncclSuccess;
    SHARDBOOK_CHECK(ncclCommGetAsyncError(wire.comm, &state));
    if (state != ncclSuccess) worst = state;
  });
  if (worst == ncclSuccess) return;
  for_each_wire([](Wire& wire) {
    ncclCommAbort(wire.comm);
    wire.comm = nullptr;
  });
  throw Error(Code::lost, fmt::format("device {}: expected every device to be there, given NCCL's {}",
                                      control().device_id(), ncclGetErrorString(worst)));
}

std::vector<cudaStream_t> queues() {
  std::vector<cudaStream_t> all = {gpu().communication()};
  for (auto& [peer, pair] : wires().pairs) all.push_back(pair.queue());
  all.push_back(gpu().computation());
  return all;
}

void close_wires() {
  if (wires().all.comm != nullptr) ncclCommDestroy(wires().all.comm);
  for (auto& [peer, pair] : wires().pairs) pair.close();
}

}  // namespace shard::cuda
