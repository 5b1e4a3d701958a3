#pragma once

/// Sends the data of NCCL's calls over MPI.

#include <mpi.h>

#include <set>
#include <string>
#include <vector>

#include "double.hpp"
#include "nccl.h"

namespace cuda_double {

enum class Kind : std::int64_t { all_reduce, reduce, broadcast, reduce_scatter, all_gather, send };
/// The function of NCCL.
const char* name_of(Kind kind);

/// The line that is sent ahead of a call's data.
struct Line {
  Kind kind;
  std::int64_t count, type, op, root;
  std::int64_t place;  // among the communicator's collectives, which is the same on all ranks
  bool operator==(const Line&) const = default;

  std::string describe() const;
};

struct Call {
  Line line;
  const void* from = nullptr;  // none: a receive
  void* to = nullptr;          // none: a send
  int peer = -1;
  ncclComm_t comm;
  cudaStream_t stream;
};

std::size_t bytes_of(std::int64_t count, std::int64_t type);

/// The ranks that a call sends to, and those that it receives from.
bool sends_to(const Call& c, int other);
bool receives_from(const Call& c, int other);
/// Makes a call's result from the data that each rank has sent.
void put_together(const Call& c, const std::vector<std::vector<char>>& arrived);

/// The calls of one group on one communicator, as work for a stream.
std::function<bool()> transfer_of(std::vector<Call> calls);

/// MPI's communicator for all data that the double sends, and the one on which hosts meet.
MPI_Comm world_of_double();
extern MPI_Comm meetings_of_double;

/// Waits for a peer as a host does in a call of NCCL.
void wait(MPI_Request& request, const char* call);

}  // namespace cuda_double

struct ncclComm {
  int rank;
  std::vector<int> members;  // their ranks in the world
  int tag;
  std::int64_t launched = 0;  // the number of groups launched so far
  std::int64_t done = 0;
  std::int64_t collectives = 0;  // called
  cuda_double::Clock used = {};  // the times of the launched work that uses this communicator
  ncclResult_t state = ncclSuccess;
  bool connects_collectives = false;              // at the first one
  std::set<std::pair<int, bool>> connected = {};  // peers, and whether for sends to them

  int size() const { return static_cast<int>(members.size()); }
};
