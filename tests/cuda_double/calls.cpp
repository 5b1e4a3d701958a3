// NCCL's functions, called in groups or alone.

#include <fmt/format.h>

#include <algorithm>

#include "launch_order.hpp"
#include "transfers.hpp"

using namespace cuda_double;

namespace {

std::vector<Call> grouped;

std::vector<Access> accesses_of(const Call& c) {
  std::vector<Access> accesses;
  const std::size_t bytes = bytes_of(c.line.count, c.line.type);
  const auto all = static_cast<std::size_t>(c.comm->size());
  const bool is_root = c.line.root == c.comm->rank;
  const bool reads = c.from != nullptr && (c.line.kind != Kind::broadcast || is_root);
  const bool writes = c.to != nullptr && (c.line.kind != Kind::reduce || is_root);
  if (reads) accesses.push_back({c.from, c.line.kind == Kind::reduce_scatter ? all * bytes : bytes, false});
  if (writes) accesses.push_back({c.to, c.line.kind == Kind::all_gather ? all * bytes : bytes, true});
  return accesses;
}

/// Refuses a result that overlaps the source, unless they are equal, or one is the rank's part of the other.
void require_in_place_or_apart(const Call& c, const std::vector<Access>& accesses) {
  const std::size_t part = static_cast<std::size_t>(c.comm->rank) * bytes_of(c.line.count, c.line.type);
  const char* from = static_cast<const char*>(c.from) + (c.line.kind == Kind::reduce_scatter ? part : 0);
  const char* to = static_cast<const char*>(c.to) + (c.line.kind == Kind::all_gather ? part : 0);
  if (accesses.size() == 2 && from != to && overlap(accesses[0], accesses[1]))
    violation(fmt::format("{}: the result lies on a part of the source", name_of(c.line.kind)));
}

void require_apart(const std::vector<Access>& of_one, const std::vector<Access>& of_other) {
  for (const Access& a : of_one)
    for (const Access& b : of_other)
      if ((a.is_write || b.is_write) && overlap(a, b)) violation("two calls of a group use the same memory");
}

/// Connects ranks at the first use, as NCCL does since 2.22: each direction between two ranks, and, unless
/// NCCL_RUNTIME_CONNECT is 0, a ring for collectives. The host waits for its peers, while streams progress.
void connect(const std::vector<Call>& together) {
  ncclComm& comm = *together[0].comm;
  std::vector<MPI_Request> requests;
  auto meet = [&](int rank, int tag) {
    const int process = comm.members[static_cast<std::size_t>(rank)];
    MPI_Issend(nullptr, 0, MPI_BYTE, process, 4 * comm.tag + tag, meetings_of_double,
               &requests.emplace_back());
    MPI_Irecv(nullptr, 0, MPI_BYTE, process, 4 * comm.tag + tag, meetings_of_double,
              &requests.emplace_back());
  };
  for (const Call& c : together) {
    const bool is_send = c.from != nullptr;
    if (c.line.kind == Kind::send) {
      if (c.peer == comm.rank || !comm.connected.emplace(c.peer, is_send).second) continue;
      meet(c.peer, is_send == (comm.rank < c.peer) ? 1 : 2);
    } else if (std::exchange(comm.connects_collectives, false)) {
      const int right = (comm.rank + 1) % comm.size(), left = (comm.rank + comm.size() - 1) % comm.size();
      if (right != comm.rank) meet(right, 0);
      if (left != right) meet(left, 0);
    }
  }
  for (MPI_Request& request : requests) wait(request, name_of(together[0].line.kind));
}

/// Launches the calls of a group, those of each communicator together.
void launch_calls(std::vector<Call> calls) {
  while (!calls.empty()) {
    const Call first = calls.front();
    std::vector<Call> together, others;
    std::vector<Access> accesses;
    for (const Call& c : calls) {
      (c.comm == first.comm ? together : others).push_back(c);
      if (c.comm != first.comm) continue;
      if (c.stream != first.stream) violation("one communicator in several streams of a group");
      const std::vector<Access> more = accesses_of(c);
      require_in_place_or_apart(c, more);
      require_apart(accesses, more);
      accesses.insert(accesses.end(), more.begin(), more.end());
    }
    connect(together);
    note_launch(together);
    add_work(first.stream, name_of(first.line.kind), accesses, transfer_of(std::move(together)));
    first.comm->used[first.stream->number] = first.stream->clock[first.stream->number];
    calls = std::move(others);
  }
}

ncclResult_t call(const char* name, Call c) {
  if (const int error = planted(name)) return static_cast<ncclResult_t>(error);
  require_there("communicators", c.comm, name);
  const int other =
      c.line.kind == Kind::send ? c.peer : static_cast<int>(std::max<std::int64_t>(c.line.root, 0));
  if (other < 0 || other >= c.comm->size()) violation(fmt::format("{}: no rank {}", name, other));
  if (c.line.kind != Kind::send) c.line.place = ++c.comm->collectives;
  if (open_groups > 0)
    grouped.push_back(c);
  else
    launch_calls({c});
  return ncclSuccess;
}

Line line(Kind kind, std::size_t count, ncclDataType_t type, int op = -1, int root = -1) {
  return {kind, static_cast<std::int64_t>(count), type, op, root, 0};
}

}  // namespace

ncclResult_t ncclGroupStart() {
  ++open_groups;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (const int error = planted("ncclGroupEnd"))
    return static_cast<ncclResult_t>(error == left_out ? 0 : error);
  if (open_groups == 0) violation("ncclGroupEnd without ncclGroupStart");
  if (--open_groups == 0) launch_calls(std::exchange(grouped, {}));
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return call("ncclAllReduce", {line(Kind::all_reduce, count, type, op), from, to, -1, comm, stream});
}

ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclReduce", {line(Kind::reduce, count, type, op, root), from, to, -1, comm, stream});
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return call("ncclBroadcast", {line(Kind::broadcast, count, type, -1, root), from, to, -1, comm, stream});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclReduceScatter", {line(Kind::reduce_scatter, count, type, op), from, to, -1, comm, stream});
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return call("ncclAllGather", {line(Kind::all_gather, count, type), from, to, -1, comm, stream});
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call("ncclSend", {line(Kind::send, count, type), from, nullptr, peer, comm, stream});
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call("ncclRecv", {line(Kind::send, count, type), nullptr, to, peer, comm, stream});
}
