// NCCL of the double, over MPI: a call's data goes to each device that needs it, behind a line that says what the call
// is, and who receives it compares that with the own call.

#include "nccl.h"

#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <set>

#include "double.hpp"

using namespace cuda_double;

namespace {

/// How long a call may wait for its peers. The default is long enough for a machine that is busy.
std::chrono::seconds patience() {
  const char* given = std::getenv("CUDA_DOUBLE_PATIENCE");
  return std::chrono::seconds(given == nullptr ? 60 : std::atoi(given));
}

enum class Kind : std::int64_t { all_reduce, reduce, broadcast, reduce_scatter, all_gather, send };
constexpr const char* names[] = {"ncclAllReduce",     "ncclReduce",    "ncclBroadcast",
                                 "ncclReduceScatter", "ncclAllGather", "ncclSend or ncclRecv"};

/// What travels ahead of a call's data.
struct Line {
  Kind kind;
  std::int64_t count, type, op, root;
  bool operator==(const Line&) const = default;

  std::string describe() const {
    return fmt::format("{} of {} elements of type {}, operation {}, root {}", names[static_cast<int>(kind)],
                       count, type, op, root);
  }
};

struct Call {
  Line line;
  const void* from = nullptr;  // none: a receive
  void* to = nullptr;          // none: a send
  int peer = -1;
  ncclComm_t comm;
  cudaStream_t queue;
};

std::size_t bytes_of(std::int64_t count, std::int64_t type) {
  return static_cast<std::size_t>(count) * (type == ncclFloat64 ? 8 : 4);
}

}  // namespace

struct ncclComm {
  int rank;
  std::vector<int> members;  // their ranks in the world
  int tag;
  std::int64_t queued = 0;  // groups, in the order in which they were queued
  std::int64_t done = 0;
  ncclResult_t state = ncclSuccess;

  int size() const { return static_cast<int>(members.size()); }
};

namespace {

MPI_Comm world_of_double() {
  static MPI_Comm comm = [] {
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    return copy;
  }();
  return comm;
}

struct Outgoing {
  std::vector<char> bytes;
  MPI_Request request;
};

/// The calls of one group, on their way.
class Transfer {
 public:
  explicit Transfer(std::vector<Call> calls) : calls_(std::move(calls)), comm_(calls_[0].comm) {
    turn_ = comm_->queued++;
  }

  /// True when all has been sent and has come.
  bool advance() {
    if (comm_->done != turn_) return false;
    if (!has_begun_) begin();
    for (auto e = expected_.begin(); e != expected_.end();) e = take(*e) ? expected_.erase(e) : std::next(e);
    int is_sent = 1;
    for (Outgoing& o : outgoing_)
      if (is_sent) PMPI_Test(&o.request, &is_sent, MPI_STATUS_IGNORE);
    if (!expected_.empty() || !is_sent) {
      complain_if_late();
      return false;
    }
    for (std::size_t i = 0; i < calls_.size(); ++i) finish(calls_[i], arrived_[i]);
    ++comm_->done;
    return true;
  }

 private:
  struct Expected {
    std::size_t call;
    int source;
  };

  /// Whom a call sends to, and who sends to it.
  static bool sends_to(const Call& c, int other) {
    const bool is_root = c.line.root == c.comm->rank;
    switch (c.line.kind) {
      case Kind::send:
        return c.from != nullptr && other == c.peer;
      case Kind::reduce:
        return other == c.line.root;
      case Kind::broadcast:
        return is_root;
      default:
        return true;
    }
  }
  static bool receives_from(const Call& c, int other) {
    const bool is_root = c.line.root == c.comm->rank;
    switch (c.line.kind) {
      case Kind::send:
        return c.to != nullptr && other == c.peer;
      case Kind::reduce:
        return is_root;
      case Kind::broadcast:
        return other == c.line.root;
      default:
        return true;
    }
  }

  void begin() {
    has_begun_ = true;
    since_ = std::chrono::steady_clock::now();
    arrived_.resize(calls_.size());
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Call& c = calls_[i];
      arrived_[i].resize(static_cast<std::size_t>(comm_->size()));
      for (int other = 0; other < comm_->size(); ++other) {
        if (sends_to(c, other)) post(c, other);
        if (receives_from(c, other)) expected_.push_back({i, other});
      }
    }
  }

  void post(const Call& c, int to) {
    const std::size_t bytes = bytes_of(c.line.count, c.line.type);
    const char* data = static_cast<char*>(kept_at(c.from));
    if (c.line.kind == Kind::reduce_scatter) data += static_cast<std::size_t>(to) * bytes;
    Outgoing& o = outgoing_.emplace_back();
    o.bytes.resize(sizeof(Line) + bytes);
    std::memcpy(o.bytes.data(), &c.line, sizeof(Line));
    std::memcpy(o.bytes.data() + sizeof(Line), data, bytes);
    MPI_Issend(o.bytes.data(), static_cast<int>(o.bytes.size()), MPI_BYTE,
               comm_->members[static_cast<std::size_t>(to)], comm_->tag, world_of_double(), &o.request);
  }

  /// Of each source, messages come in the order of its calls.
  bool take(const Expected& e) {
    for (const Expected& earlier : expected_) {
      if (earlier.call == e.call && earlier.source == e.source) break;
      if (earlier.source == e.source) return false;
    }
    int there = 0;
    MPI_Message message;
    MPI_Status status;
    MPI_Improbe(comm_->members[static_cast<std::size_t>(e.source)], comm_->tag, world_of_double(), &there,
                &message, &status);
    if (!there) return false;
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    std::vector<char> bytes(static_cast<std::size_t>(count));
    MPI_Mrecv(bytes.data(), count, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    Line theirs;
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    const Line& mine = calls_[e.call].line;
    if (theirs != mine)
      violation(fmt::format("calls that do not fit: {} here and {} on rank {}", mine.describe(),
                            theirs.describe(), e.source));
    arrived_[e.call][static_cast<std::size_t>(e.source)].assign(bytes.begin() + sizeof(Line), bytes.end());
    return true;
  }

  void complain_if_late() {
    if (std::chrono::steady_clock::now() - since_ < patience()) return;
    if (expected_.empty())
      violation(fmt::format("nobody receives: {} on rank {}", calls_[0].line.describe(), comm_->rank));
    violation(fmt::format("nothing comes from rank {}: {} on rank {}", expected_.front().source,
                          calls_[expected_.front().call].line.describe(), comm_->rank));
  }

  static void finish(const Call& c, const std::vector<std::vector<char>>& arrived) {
    char* to = c.to == nullptr ? nullptr : static_cast<char*>(kept_at(c.to));
    const std::size_t bytes = bytes_of(c.line.count, c.line.type);
    switch (c.line.kind) {
      case Kind::all_gather:
        for (std::size_t d = 0; d < arrived.size(); ++d)
          std::memcpy(to + d * bytes, arrived[d].data(), bytes);
        return;
      case Kind::send:
        if (to != nullptr) std::memcpy(to, arrived[static_cast<std::size_t>(c.peer)].data(), bytes);
        return;
      case Kind::broadcast:
        std::memcpy(to, arrived[static_cast<std::size_t>(c.line.root)].data(), bytes);
        return;
      default:
        if (!arrived[0].empty()) reduce(arrived, static_cast<ncclRedOp_t>(c.line.op), to, bytes);
    }
  }

  static void reduce(const std::vector<std::vector<char>>& addends, ncclRedOp_t op, char* to,
                     std::size_t bytes) {
    std::vector<float> sum(bytes / sizeof(float)), next(sum.size());
    std::memcpy(sum.data(), addends[0].data(), bytes);
    for (std::size_t d = 1; d < addends.size(); ++d) {
      std::memcpy(next.data(), addends[d].data(), bytes);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = combined(sum[i], next[i], op);
    }
    std::memcpy(to, sum.data(), bytes);
  }

  static float combined(float a, float b, ncclRedOp_t op) {
    switch (op) {
      case ncclMax:
        return std::max(a, b);
      case ncclMin:
        return std::min(a, b);
      case ncclProd:
        return a * b;
      default:
        return a + b;
    }
  }

  std::vector<Call> calls_;
  ncclComm_t comm_;
  std::int64_t turn_;
  bool has_begun_ = false;
  std::chrono::steady_clock::time_point since_;
  std::list<Outgoing> outgoing_;
  std::list<Expected> expected_;
  std::vector<std::vector<std::vector<char>>> arrived_;  // of each call, from each rank
};

std::vector<Call> grouped;

/// Memory that a call uses.
void note(const Call& c, std::vector<Access>& accesses) {
  const std::size_t bytes = bytes_of(c.line.count, c.line.type);
  const auto all = static_cast<std::size_t>(c.comm->size());
  const bool is_root = c.line.root == c.comm->rank;
  const bool reads = c.from != nullptr && (c.line.kind != Kind::broadcast || is_root);
  const bool writes = c.to != nullptr && (c.line.kind != Kind::reduce || is_root);
  if (reads) accesses.push_back({c.from, c.line.kind == Kind::reduce_scatter ? all * bytes : bytes, false});
  if (writes) accesses.push_back({c.to, c.line.kind == Kind::all_gather ? all * bytes : bytes, true});
}

/// Queues the calls of a group, those of each communicator together.
void queue_calls(std::vector<Call> calls) {
  while (!calls.empty()) {
    const Call first = calls.front();
    std::vector<Call> together, others;
    std::vector<Access> accesses;
    for (const Call& c : calls) {
      (c.comm == first.comm ? together : others).push_back(c);
      if (c.comm != first.comm) continue;
      if (c.queue != first.queue) violation("one communicator in several queues of a group");
      note(c, accesses);
    }
    auto transfer = std::make_shared<Transfer>(std::move(together));
    enqueue(first.queue, names[static_cast<int>(first.line.kind)], accesses,
            [transfer] { return transfer->advance(); });
    calls = std::move(others);
  }
}

ncclResult_t call(const char* name, Call c) {
  if (const int error = planted(name)) return static_cast<ncclResult_t>(error);
  require_there("communicators", c.comm, name);
  const int other =
      c.line.kind == Kind::send ? c.peer : static_cast<int>(std::max<std::int64_t>(c.line.root, 0));
  if (other < 0 || other >= c.comm->size()) violation(fmt::format("{}: no rank {}", name, other));
  if (open_groups > 0)
    grouped.push_back(c);
  else
    queue_calls({c});
  return ncclSuccess;
}

Line line(Kind kind, std::size_t count, ncclDataType_t type, int op = -1, int root = -1) {
  return {kind, static_cast<std::int64_t>(count), type, op, root};
}

/// Waits as a host would, while the queues go on.
void wait(MPI_Request& request) {
  int done = 0;
  for (PMPI_Test(&request, &done, MPI_STATUS_IGNORE); !done; PMPI_Test(&request, &done, MPI_STATUS_IGNORE)) {
    progress();
    sched_yield();
  }
}

struct Id {
  int creator, tag;
};

}  // namespace

/// A GPU goes on while its host waits for messages: the program's waits all come by here.
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  progress();
  return PMPI_Test(request, done, status);
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "an error planted in the test double";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int made = 0;
  Id mine{};
  MPI_Comm_rank(MPI_COMM_WORLD, &mine.creator);
  mine.tag = 100 + mine.creator * 1000 + made++;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &mine, sizeof mine);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  if (const int error = planted("ncclCommInitRank")) return static_cast<ncclResult_t>(error);
  Id made;
  std::memcpy(&made, &id, sizeof made);
  int world_rank;
  MPI_Comm_rank(world_of_double(), &world_rank);
  std::array<int, 2> mine = {rank, world_rank};
  std::vector<int> members(static_cast<std::size_t>(ranks), -1);
  MPI_Request sent, come;
  MPI_Issend(mine.data(), 2, MPI_INT, made.creator, made.tag, world_of_double(), &sent);
  if (world_rank == made.creator) {
    std::vector<MPI_Request> answers(members.size());
    for (int i = 0; i < ranks; ++i) {
      std::array<int, 2> theirs;
      MPI_Irecv(theirs.data(), 2, MPI_INT, MPI_ANY_SOURCE, made.tag, world_of_double(), &come);
      wait(come);
      if (theirs[0] < 0 || theirs[0] >= ranks || members[static_cast<std::size_t>(theirs[0])] >= 0)
        violation(fmt::format("ncclCommInitRank: rank {} of {}, or twice", theirs[0], ranks));
      members[static_cast<std::size_t>(theirs[0])] = theirs[1];
    }
    const std::vector<int> complete = members;
    for (std::size_t d = 0; d < members.size(); ++d)
      if (members[d] != world_rank)
        MPI_Send(complete.data(), ranks, MPI_INT, members[d], made.tag, world_of_double());
  } else {
    MPI_Irecv(members.data(), ranks, MPI_INT, made.creator, made.tag, world_of_double(), &come);
    wait(come);
  }
  wait(sent);
  *comm = new ncclComm{rank, members, made.tag};
  gained("communicators", *comm);
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (planted("ncclCommDestroy")) return ncclSuccess;
  given_back("communicators", comm, "ncclCommDestroy");
  if (comm->done != comm->queued) violation("ncclCommDestroy with calls on their way");
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  given_back("communicators", comm, "ncclCommAbort");
  return ncclSuccess;  // what is on its way may still look at it
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  require_there("communicators", comm, "ncclCommGetAsyncError");
  if (const int error = planted("asynchronous error")) comm->state = static_cast<ncclResult_t>(error);
  *state = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++open_groups;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (const int error = planted("ncclGroupEnd"))
    return static_cast<ncclResult_t>(error == left_out ? 0 : error);
  if (open_groups == 0) violation("ncclGroupEnd without ncclGroupStart");
  if (--open_groups == 0) queue_calls(std::exchange(grouped, {}));
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t queue) {
  return call("ncclAllReduce", {line(Kind::all_reduce, count, type, op), from, to, -1, comm, queue});
}

ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t queue) {
  return call("ncclReduce", {line(Kind::reduce, count, type, op, root), from, to, -1, comm, queue});
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t queue) {
  return call("ncclBroadcast", {line(Kind::broadcast, count, type, -1, root), from, to, -1, comm, queue});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t queue) {
  return call("ncclReduceScatter", {line(Kind::reduce_scatter, count, type, op), from, to, -1, comm, queue});
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t queue) {
  return call("ncclAllGather", {line(Kind::all_gather, count, type), from, to, -1, comm, queue});
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t queue) {
  return call("ncclSend", {line(Kind::send, count, type), from, nullptr, peer, comm, queue});
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t queue) {
  return call("ncclRecv", {line(Kind::send, count, type), nullptr, to, peer, comm, queue});
}
