#pragma once

/// NCCL requires that all devices launch the calls of all their communicators in the same order, whatever
/// their streams. Otherwise two kernels can each occupy a GPU and wait for each other.

#include <mpi.h>

#include <vector>

#include "transfers.hpp"

namespace cuda_double {

/// A collective of all processes.
void share_launches(MPI_Comm all);

/// Records calls of one communicator that this process launches together. Ends the program when processes
/// that wait for one another launch such calls in different orders. A single send or receive between two
/// processes may come between any other launches, since it occupies only a small part of the two GPUs.
void note_launch(const std::vector<Call>& calls);

}  // namespace cuda_double
