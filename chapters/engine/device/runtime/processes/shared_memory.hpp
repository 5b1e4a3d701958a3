#pragma once

/// Memory that the processes of one host share: the members of a group tell one another in it what they call. All else
/// goes over MPI.

#include <mpi.h>

#include <memory>
#include <span>

#include "engine/device/runtime/groups/wire.hpp"

namespace shard::runtime {

/// The words of a group's members: for each call, as many numbers of each member, at most `most`.
class SharedWords {
 public:
  static constexpr std::size_t most = 7;  ///< with the call's number, a cache line
  struct Line;

  SharedWords(Line* lines, int place, int members)
      : lines_(lines), place_(static_cast<std::size_t>(place)), members_(static_cast<std::size_t>(members)) {}
  /// Tells the members this member's words of their next call. Complete when `all` has everybody's.
  Started tell(std::span<const Index> mine, std::span<Index> all);

 private:
  /// A member's line for a call. Calls use two sets of lines in turn: a member that begins call k + 2 knows that all
  /// have begun k + 1, so they have read the words of k.
  Line& line(std::size_t member, Index call) const;

  Line* lines_;
  std::size_t place_, members_;
  Index call_ = 0;
};

class SharedMemory {
 public:
  /// This process's view of its host's memory.
  static SharedMemory& instance();
  /// A collective of all processes. Call it once, after MPI_Init.
  void begin();

  /// The devices of this host for each of its cores, rounded up.
  int devices_per_core() const { return devices_per_core_; }

  /// Room for the words of a group. Null where its members are not all on this host, or no room is left. A collective.
  std::unique_ptr<SharedWords> words_of(MPI_Comm comm);

 private:
  struct Head;

  MPI_Comm host_ = MPI_COMM_NULL;
  int devices_per_core_ = 1;
  Head* head_ = nullptr;
  SharedWords::Line* lines_ = nullptr;
};

}  // namespace shard::runtime
