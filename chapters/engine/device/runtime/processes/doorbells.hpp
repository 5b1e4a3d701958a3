#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <vector>

namespace shard::runtime {

/// How a waiting process sleeps until a message comes, and leaves its core to others. MPI itself can only be
/// asked in a loop whether a message is there. So each device has a flag in memory that all devices of its host
/// share. A device that waits sets its flag, asks once more, and sleeps. A device that has sent it something
/// wakes it.
class Doorbells {
 public:
  /// This process's.
  static Doorbells& instance();

  /// Shares the flags among the devices of this host. A collective of these. Where the memory cannot be shared,
  /// the calls below have no effect, and `sleep` sleeps for the whole time.
  void connect(MPI_Comm devices_of_host);
  /// Wakes a device, given by its rank in MPI_COMM_WORLD, if it sleeps on this host. Call it after the message
  /// was handed to MPI.
  void ring(int device);
  /// Says that this device is about to sleep. It must ask once more for what it waits for, and then either call
  /// `sleep`, or `stay_awake`.
  void announce_sleep();
  /// Returns when another device rings, and at the latest after this time.
  void sleep(std::chrono::nanoseconds at_most);
  void stay_awake();

 private:
  /// A cache line of its own.
  struct alignas(64) Flag {
    std::atomic<int> sleeps = 0;
  };
  Flag* mine_ = nullptr;
  std::vector<Flag*> of_devices_;  // by rank in MPI_COMM_WORLD; null on other hosts
};

}  // namespace shard::runtime
