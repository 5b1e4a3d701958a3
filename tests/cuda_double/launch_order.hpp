#pragma once

/// NCCL demands one order: all devices launch the calls of all their communicators in the same order,
/// whichever streams these are in. Else each of two kernels can occupy its GPU and wait for the other one.

#include <mpi.h>

#include <vector>

#include "transfers.hpp"

namespace cuda_double {

/// A collective of all processes.
void share_launches(MPI_Comm all);

/// Calls of one communicator that this process launches together. Ends the program when processes that wait
/// for one another launch such calls in different orders. A single send or receive on a communicator of two
/// processes may come at any point between other launches: it occupies a small part of its two GPUs.
void note_launch(const std::vector<Call>& calls);

}  // namespace cuda_double
