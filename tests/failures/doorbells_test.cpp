// Devices that are processes of one host wake one another.

#include "engine/device/runtime/processes/doorbells.hpp"

#include <thread>

#include "tests/harness/catch.hpp"

using namespace shard::runtime;
using namespace std::chrono_literals;

namespace {

RUNS_ON(.in_one_process = {}, .processes = {2});

TEST_CASE("A device that has announced that it sleeps wakes when another rings, before its sleep or in it") {
  Doorbells doorbells;
  doorbells.connect(MPI_COMM_WORLD);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (const auto delay : {0ms, 50ms}) {
    const bool is_early = delay == 0ms;
    if (rank == 1) doorbells.announce_sleep();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) std::this_thread::sleep_for(delay), doorbells.ring(1);
    if (is_early) MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
      const auto since = std::chrono::steady_clock::now();
      doorbells.sleep(10s);
      CHECK(std::chrono::steady_clock::now() - since < 5s);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

}  // namespace
