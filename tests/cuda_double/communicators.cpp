// Communicators of the double: how ranks find one another, and how streams progress while a host waits.

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <set>

#include "launch_order.hpp"
#include "transfers.hpp"

using namespace cuda_double;

MPI_Comm cuda_double::meetings_of_double = MPI_COMM_NULL;

MPI_Comm cuda_double::world_of_double() {
  static MPI_Comm comm = [] {
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_dup(MPI_COMM_WORLD, &meetings_of_double);
    share_launches(copy);
    return copy;
  }();
  return comm;
}

void cuda_double::wait(MPI_Request& request, const char* call) {
  block_host(call, [&] {
    int done = 0;
    PMPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

namespace {

struct Id {
  int creator, tag;
};

/// The message from each rank to the process that made the id.
struct Introduction {
  int rank, process, gpu;
  std::size_t host;  // NCCL_HOSTID, as a number
  cudaDeviceProp properties;
};

Introduction introduction(int rank) {
  const char* host = std::getenv("NCCL_HOSTID");
  Introduction mine{rank, 0, 0, std::hash<std::string>()(host == nullptr ? "" : host), {}};
  MPI_Comm_rank(world_of_double(), &mine.process);
  cudaGetDevice(&mine.gpu);
  cudaGetDeviceProperties(&mine.properties, mine.gpu);
  return mine;
}

/// The process of every rank, for the process that made the id. Each rank must come once, with its own GPU.
std::vector<int> introduced(int ranks, int tag) {
  std::vector<int> processes(static_cast<std::size_t>(ranks), -1);
  std::set<std::pair<std::size_t, std::string>> gpus;
  for (int i = 0; i < ranks; ++i) {
    Introduction theirs;
    MPI_Request come;
    MPI_Irecv(&theirs, sizeof theirs, MPI_BYTE, MPI_ANY_SOURCE, tag, world_of_double(), &come);
    wait(come, "ncclCommInitRank");
    if (theirs.rank < 0 || theirs.rank >= ranks || processes[static_cast<std::size_t>(theirs.rank)] >= 0)
      violation(fmt::format("ncclCommInitRank: rank {} of {}, or twice", theirs.rank, ranks));
    if (!gpus.emplace(theirs.host, std::string(theirs.properties.uuid.bytes, 16)).second)
      violation(fmt::format("ncclCommInitRank: two ranks on GPU {} of one machine", theirs.gpu));
    processes[static_cast<std::size_t>(theirs.rank)] = theirs.process;
  }
  return processes;
}

}  // namespace

/// A GPU progresses while its host waits for messages: all waits of the program call this function. At
/// random, one call in three returns that the message has not arrived, so that no program can rely on the
/// order of arrival.
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  static std::minstd_rand random;
  progress();
  if (random() % 3 == 0) {
    *done = 0;
    return MPI_SUCCESS;
  }
  return PMPI_Test(request, done, status);
}

/// With CUDA_DOUBLE_CONTAINERS, each process is on a machine of its own for MPI, though all are on one.
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* part) {
  if (std::getenv("CUDA_DOUBLE_CONTAINERS") != nullptr) return PMPI_Comm_dup(MPI_COMM_SELF, part);
  return PMPI_Comm_split_type(comm, type, key, info, part);
}

/// Streams progress while a host waits here, too.
int MPI_Ssend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  MPI_Request request;
  MPI_Issend(data, count, type, to, tag, comm, &request);
  wait(request, "MPI_Ssend");
  return MPI_SUCCESS;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "an error planted in the test double";
}

const char* ncclGetLastError(ncclComm_t) {
  return "words of the test double";
}

ncclResult_t ncclGetVersion(int* version) {
  *version = 22803;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int made = 0;
  Id mine{};
  MPI_Comm_rank(MPI_COMM_WORLD, &mine.creator);
  mine.tag = 100 + mine.creator + made++ * 64;  // at most 64 processes
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &mine, sizeof mine);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  if (const int error = planted("ncclCommInitRank")) return static_cast<ncclResult_t>(error);
  wait_for_gpu("ncclCommInitRank of " + std::to_string(ranks));
  Id made;
  std::memcpy(&made, &id, sizeof made);
  const Introduction mine = introduction(rank);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  MPI_Request sent, come;
  MPI_Issend(&mine, sizeof mine, MPI_BYTE, made.creator, made.tag, world_of_double(), &sent);
  if (mine.process == made.creator) {
    members = introduced(ranks, made.tag);
    for (int member : members)
      if (member != mine.process)
        MPI_Send(members.data(), ranks, MPI_INT, member, made.tag, world_of_double());
  } else {
    MPI_Irecv(members.data(), ranks, MPI_INT, made.creator, made.tag, world_of_double(), &come);
    wait(come, "ncclCommInitRank");
  }
  wait(sent, "ncclCommInitRank");
  *comm = new ncclComm{rank, members, made.tag};
  const char* at_first_use = std::getenv("NCCL_RUNTIME_CONNECT");
  (*comm)->connects_collectives = at_first_use == nullptr || std::atoi(at_first_use) != 0;
  gained("communicators", *comm);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const ncclResult_t result = ncclCommInitRank(comm, ranks, id, rank);
  if (result != ncclSuccess) return result;
  (*comm)->multiprocessors = config->maxCTAs;
  // 12 MiB for each channel to each other rank, by NCCL's source. The double frees none, since programs do not.
  buffers_of_nccl += (std::size_t{12} << 20) * static_cast<std::size_t>(config->maxCTAs * (ranks - 1));
  return result;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (planted("ncclCommDestroy")) return ncclSuccess;
  given_back("communicators", comm, "ncclCommDestroy");
  for (const auto& [stream, tick] : comm->used)
    if (!host_knows(stream, tick))
      violation("ncclCommDestroy while its calls may be on their way, as far as the host knows");
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  require_there("communicators", comm, "ncclCommGetAsyncError");
  if (const int error = planted("asynchronous error")) comm->state = static_cast<ncclResult_t>(error);
  *state = comm->state;
  return ncclSuccess;
}
