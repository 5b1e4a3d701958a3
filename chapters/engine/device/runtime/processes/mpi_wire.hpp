#pragma once

#include <mpi.h>

#include "engine/device/runtime/group.hpp"

namespace shard::runtime {

/// The group's communicator, for a backend that sends messages of its own.
MPI_Comm comm_of(const Group& group);
/// \throws Error lost unless an MPI call was a success.
void require_success(int result, const char* what);

}  // namespace shard::runtime
