// Communicators of the double: how ranks find one another, and what goes on while a host waits.

#include <fmt/format.h>
#include <sched.h>

#include <array>
#include <cstring>

#include "transfers.hpp"

using namespace cuda_double;

MPI_Comm cuda_double::world_of_double() {
  static MPI_Comm comm = [] {
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    return copy;
  }();
  return comm;
}

namespace {

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
