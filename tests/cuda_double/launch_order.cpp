// The order in which processes launch calls of their communicators, in memory that all of them share. Each
// process has one list of launches. A launch is done when it is the first in the list of each process that
// takes part. If first launches wait for one another in a cycle, the processes have used different orders.

#include "launch_order.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace cuda_double {

namespace {

constexpr int most_processes = 16;
constexpr std::uint64_t most_launches =
    256;  // of a process, for which other processes have not launched their part

struct Launch {
  int communicator;  // its tag
  Kind kind;
  bool waits_for[most_processes];       // whether that process has not made this launch yet
  std::int64_t number[most_processes];  // of this launch, among the communicator's launches with that process
};

struct Process {
  std::uint64_t done, all;  // counts
  Launch launches[most_launches];

  Launch& launch(std::uint64_t k) { return launches[k % most_launches]; }
  Launch* first() { return done == all ? nullptr : &launch(done); }
};

struct Shared {
  std::atomic_flag is_locked;
  Process processes[most_processes];
};

Shared* shared = nullptr;
int this_process = 0;

/// Whether launches of processes p and q belong to the same call.
bool are_one(int p, const Launch& of_p, int q, const Launch& of_q) {
  return of_p.communicator == of_q.communicator && of_p.waits_for[q] && of_q.waits_for[p] &&
         of_p.number[q] == of_q.number[p];
}

/// Matches first launches. True when process p's is done.
bool advance(int p) {
  Launch* mine = shared->processes[p].first();
  if (mine == nullptr) return false;
  bool is_done = true;
  for (int q = 0; q < most_processes; ++q) {
    Launch* theirs = shared->processes[q].first();
    if (theirs != nullptr && are_one(p, *mine, q, *theirs)) mine->waits_for[q] = theirs->waits_for[p] = false;
    is_done = is_done && !mine->waits_for[q];
  }
  if (is_done) ++shared->processes[p].done;
  return is_done;
}

/// Whether p's first launch waits for a launch of q that is behind q's first one.
bool waits_behind(int p, int q) {
  Process& theirs = shared->processes[q];
  const Launch* of_p = shared->processes[p].first();
  for (std::uint64_t k = theirs.done + 1; of_p != nullptr && k < theirs.all; ++k)
    if (are_one(p, *of_p, q, theirs.launch(k))) return true;
  return false;
}

/// Extends a path of processes, each of which waits for the next, until it returns to its beginning.
bool closes_circle(std::vector<int>& path) {
  for (int q = 0; q < most_processes; ++q) {
    if (!waits_behind(path.back(), q)) continue;
    if (q == path.front()) return true;
    if (std::find(path.begin(), path.end(), q) != path.end()) continue;
    path.push_back(q);
    if (closes_circle(path)) return true;
    path.pop_back();
  }
  return false;
}

std::string describe(const Launch& launch) {
  return fmt::format("{} on communicator {}", name_of(launch.kind), launch.communicator);
}

/// The mistake found, or empty.
std::string crosswise_launches() {
  for (int p = 0; p < most_processes; ++p) {
    std::vector<int> path = {p};
    if (!closes_circle(path)) continue;
    std::string text = "communicators are used in different orders:";
    for (std::size_t i = 0; i < path.size(); ++i) {
      const int next = path[(i + 1) % path.size()];
      text += fmt::format("{} process {} launched {} before {}", i == 0 ? "" : ";", next,
                          describe(*shared->processes[next].first()),
                          describe(*shared->processes[path[i]].first()));
    }
    return text;
  }
  return "";
}

/// This process's launch of these calls, which waits for its peers alone.
Launch launch_of(const std::vector<Call>& calls) {
  static std::map<std::pair<int, int>, std::int64_t> numbers;  // by communicator and process
  Launch launch{};
  launch.communicator = calls[0].comm->tag;
  launch.kind = calls[0].line.kind;
  for (const Call& c : calls)
    for (int rank = 0; rank < c.comm->size(); ++rank)
      if (c.line.kind != Kind::send || rank == c.peer)
        launch.waits_for[c.comm->members[static_cast<std::size_t>(rank)]] = true;
  launch.waits_for[this_process] = false;
  for (int q = 0; q < most_processes; ++q)
    if (launch.waits_for[q]) launch.number[q] = ++numbers[{launch.communicator, q}];
  return launch;
}

}  // namespace

void share_launches(MPI_Comm all) {
  int size = 0;
  MPI_Comm_size(all, &size);
  MPI_Comm_rank(all, &this_process);
  if (size > most_processes) violation(fmt::format("more than {} processes", most_processes));
  MPI_Win window;
  void* mine = nullptr;
  const MPI_Aint bytes = this_process == 0 ? static_cast<MPI_Aint>(sizeof(Shared)) : 0;
  MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, all, &mine, &window);
  MPI_Aint bytes_there;
  int unit;
  MPI_Win_shared_query(window, 0, &bytes_there, &unit, &mine);
  shared = static_cast<Shared*>(mine);
  if (this_process == 0) std::memset(mine, 0, sizeof(Shared));
  MPI_Barrier(all);
}

void note_launch(const std::vector<Call>& calls) {
  const bool is_message = calls.size() == 1 && calls[0].line.kind == Kind::send;
  if (is_message && calls[0].comm->size() == 2) return;
  const Launch launch = launch_of(calls);
  while (shared->is_locked.test_and_set()) sched_yield();
  Process& me = shared->processes[this_process];
  const bool is_room = me.all - me.done < most_launches;
  if (is_room) me.launch(me.all++) = launch;
  for (bool moved = true; moved;) {
    moved = false;
    for (int p = 0; p < most_processes; ++p) moved = advance(p) || moved;
  }
  const std::string mistake = crosswise_launches();
  shared->is_locked.clear();
  if (!is_room) violation(fmt::format("more than {} launches that others have not come to", most_launches));
  if (!mistake.empty()) violation(mistake);
}

}  // namespace cuda_double
