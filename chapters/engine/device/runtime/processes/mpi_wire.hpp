#pragma once

#include <mpi.h>

#include "engine/device/runtime/groups/group.hpp"

namespace shard::runtime {

/// The group's MPI communicator, for a backend that sends messages of its own.
MPI_Comm comm_of(const Group& group);
/// \throws Error when an MPI call has failed.
void require_success(int result, const char* what, Code code = Code::lost,
                     const char* expected = "every device to be there");

}  // namespace shard::runtime
