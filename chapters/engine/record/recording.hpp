#pragma once

/// Runs a program on this device, and records it.

#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "engine/device/device.hpp"
#include "engine/record/log.hpp"

namespace shard {

/// What is recorded, and where.
struct Recording {
  std::string path;                                 ///< of the file; empty: nothing is recorded
  Index steps = std::numeric_limits<Index>::max();  ///< how many of the first steps
  std::function<Entry()> job;                       ///< what ran, as far as the record says it
};

/// Calls `body` with a communicator whose calls are recorded, and returns its exit code. Device 0 then writes the
/// record. If the body ends in an error, the record has all until then, and the error is thrown on. Where devices are
/// processes, the launcher has that record written (join_record). \throws Error file
int run_recorded(Communicator& group, const Recording& recording,
                 const std::function<int(Communicator& group)>& body);

/// Writes the record of a run that did not end well, from what its devices have left in the launcher's folder: the
/// launcher calls this program with "--join-record FOLDER CODE REPORT". Nothing for other words. Returns an exit code.
std::optional<int> join_record(int argc, char** argv);

}  // namespace shard
