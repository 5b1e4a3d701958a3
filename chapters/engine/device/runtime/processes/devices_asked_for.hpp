#pragma once

/// Whether a job has the devices that were asked for. To a program of one MPI, the launcher of another one starts
/// processes that are alone: each would train all of the network, and they would save into one folder.

#include <string>

namespace shard::runtime {

/// What is wrong with the number of devices of a job, `given`, or nothing. The number that was asked for is that of
/// chapters/on_devices, or else what a launcher says in the environment of its processes.
std::string wrong_number_of_devices(int given);

/// Whether this process is the first one that a launcher has started, or there is none.
bool is_first_of_launcher();

}  // namespace shard::runtime
