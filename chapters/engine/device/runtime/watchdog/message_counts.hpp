#pragma once

/// Counts the messages that this device has sent to and received from each other one, to report at the end of the
/// program messages that were never received.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/call_site.hpp"
#include "engine/device/split.hpp"

namespace shard::runtime {

/// Devices are given by their ids in the job. The messages of all groups are counted together.
class MessageCounts {
 public:
  static MessageCounts& instance();

  void note_sent(int to, std::string_view call, Index number, SourceLine where);
  void note_received(int from) { ++pairs_[from].received; }
  /// Discards the counts: after a deadlock they may include failed calls.
  void forget() { is_known_ = false; }

  /// The number of receives that this device has begun from each device of the job; -1 if unknown.
  std::vector<Index> received(int num_devices) const;
  /// A line for each device d that has received `received[d]` messages of this one, and fewer than were sent.
  std::string unreceived(const std::vector<Index>& received) const;

 private:
  struct Pair {
    Index sent = 0, received = 0;
    std::string call;  ///< "post_send": the last send; its number and line follow
    Index number = 0;
    SourceLine where;
  };

  std::map<int, Pair> pairs_;  // by device
  bool is_known_ = true;
};

}  // namespace shard::runtime
