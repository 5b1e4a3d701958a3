// MPI's profiling interface: a program linked with these two functions calls them instead of MPI's.
// (The double of CUDA has its own MPI_Test.)

#include "tests/harness/delays.hpp"

#include <mpi.h>

#include <map>
#include <random>
#include <utility>

namespace shard::testing {

namespace {

using Clock = std::chrono::steady_clock;

Delays delays{0, 0, {}};

/// Messages, by key, and the time from which each is visible.
template <class Key>
class Held {
 public:
  bool is_held(const Key& key, double chance) {
    if (chance == 0) return false;
    const auto [place, is_new] = times_.try_emplace(key, Clock::now());
    if (is_new) place->second += drawn(chance);
    return Clock::now() < place->second;
  }
  void forget(const Key& key) { times_.erase(key); }

 private:
  static Clock::duration drawn(double chance) {
    static std::mt19937 dice(std::random_device{}());
    std::uniform_real_distribution<> share(0, 1);
    if (share(dice) >= chance) return Clock::duration::zero();
    return std::chrono::duration_cast<Clock::duration>(delays.longest * share(dice));
  }
  std::map<Key, Clock::time_point> times_;
};

Held<MPI_Request> requests;
Held<std::pair<int, int>> arrivals;  // of the control plane, by source and tag

}  // namespace

void delay_messages(const Delays& given) {
  delays = given;
}

}  // namespace shard::testing

using namespace shard::testing;

extern "C" __attribute__((weak)) int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  const MPI_Request key = *request;
  if (key != MPI_REQUEST_NULL && requests.is_held(key, delays.of_calls))
    return PMPI_Request_get_status(key, done, MPI_STATUS_IGNORE), *done = 0, MPI_SUCCESS;  // MPI progresses
  const int result = PMPI_Test(request, done, status);
  if (*done) requests.forget(key);
  return result;
}

extern "C" int MPI_Iprobe(int from, int tag, MPI_Comm comm, int* there, MPI_Status* status) {
  MPI_Status found;
  const int result = PMPI_Iprobe(from, tag, comm, there, &found);
  if (!*there) return result;
  const std::pair key(found.MPI_SOURCE, found.MPI_TAG);
  if (arrivals.is_held(key, delays.of_control)) return *there = 0, result;
  arrivals.forget(key);
  if (status != MPI_STATUS_IGNORE) *status = found;
  return result;
}
