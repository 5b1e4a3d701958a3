#pragma once

/// The times at which devices carry out the actions of a schedule, if messages take no time.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/schedules/schedule.hpp"

namespace shard {

/// The work of each forward, by micro-batch and stage: its operations, for example.
using ForwardWork = std::map<std::pair<Index, int>, Index>;

/// The durations, in slots, of work on one micro-batch in one stage. `backward` takes the sum of its halves.
struct Durations {
  Index forward = 1;
  Index backward_input = 1;
  Index backward_weights = 1;
  ForwardWork of_piece = {};  ///< multiplies these three; empty: 1 everywhere

  Index of(const Action& action) const;
};

/// The begin and the end of one action, in slots.
struct Slot {
  Action action;
  Index begin;
  Index end;
};

struct Timeline {
  std::vector<std::vector<Slot>> work;  ///< by device
  Index length = 0;                     ///< until the last device is done

  Index busy(int device) const;
  /// The fraction of all devices' time in which they idle.
  double idle_share() const;
};

Timeline simulate(const Schedule& schedule, const Durations& durations);

/// Draws a row for each device and a column for each slot. F3 is the forward of micro-batch 3. B3 is its
/// backward, which takes twice as long; I3 and W3 are the halves of the backward. If a device has several
/// stages, a letter behind the number says which one. The forward of the stage with the least work takes a
/// slot, those of other stages as many as they have times its work, rounded, and a micro-batch without rows none.
/// A long drawing is cut into blocks, one below the other.
std::string draw(const Schedule& schedule, const ForwardWork& work = {});
/// The operations that the ledger has counted on this device.
Index operations_so_far();
/// The work that all devices of a group have noted. A collective.
ForwardWork work_of_all(Communicator& group, const ForwardWork& mine);
/// The drawing, the idle share, the most micro-batches that each device holds, and the devices that would wait for
/// one another for ever if sends blocked.
std::string describe(const Schedule& schedule, const ForwardWork& work = {});

}  // namespace shard
