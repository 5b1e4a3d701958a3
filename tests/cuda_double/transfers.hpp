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
const char* name_of(Kind kind);

/// The line sent before the data of a call.
struct Line {
  Kind kind;
  std::int64_t count, type, op, root;
  std::int64_t place;  // the number among the communicator's collectives, the same on all ranks
  bool operator==(const Line&) const = default;

  std::string describe() const;
};

struct Call {
  Line line;
  const void* from = nullptr;  // null: a receive
  void* to = nullptr;          // null: a send
  int peer = -1;
  ncclComm_t comm;
  cudaStream_t stream;
};

std::size_t bytes_of(std::int64_t count, std::int64_t type);

/// Whether a call sends to a rank, and whether it receives from one.
bool sends_to(const Call& c, int other);
bool receives_from(const Call& c, int other);
/// Computes a call's result from the data of all ranks.
void put_together(const Call& c, const std::vector<std::vector<char>>& arrived);

/// Work for a stream: the calls of one group on one communicator.
std::function<bool()> transfer_of(std::vector<Call> calls);

/// MPI's communicator for all data that the double sends, and the one on which hosts meet.
MPI_Comm world_of_double();
extern MPI_Comm meetings_of_double;

/// Waits for a peer as a host does in a call of NCCL.
void wait(MPI_Request& request, const char* call);

}  // namespace cuda_double

struct ncclComm {
  int rank;
  std::vector<int> members;  // ranks in the world
  int tag;
  int multiprocessors = 32;   // that a call occupies while it is under way
  std::int64_t launched = 0;  // number of launched groups
  std::int64_t done = 0;
  std::int64_t collectives = 0;  // number of calls
  cuda_double::Clock used = {};  // when launched work last used this communicator, by stream
  ncclResult_t state = ncclSuccess;
  bool connects_collectives = false;              // at the first one
  std::set<std::pair<int, bool>> connected = {};  // peers, and whether for sends to them

  int size() const { return static_cast<int>(members.size()); }
};
