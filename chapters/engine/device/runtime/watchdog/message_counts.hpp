#pragma once

/// How many messages this device has sent to each other one, and received: at the end of the program, a
/// message that nobody received is told. (One that its sender waits for is a deadlock before.)

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/call_site.hpp"
#include "engine/device/split.hpp"

namespace shard::runtime {

/// Devices are those of the job. All groups count together.
class MessageCounts {
 public:
  static MessageCounts& instance();

  void note_sent(int to, std::string_view call, Index number, SourceLine where);
  void note_received(int from) { ++pairs_[from].received; }
  /// After a deadlock, calls that have failed may be counted, so the counts say nothing.
  void forget() { is_known_ = false; }

  /// Messages that this device received, or began to receive, from each of the job's devices; -1: not known.
  std::vector<Index> received(int num_devices) const;
  /// What this device has sent in vain, a line each, if device d has received `received[d]` messages of it.
  std::string left_over(const std::vector<Index>& received) const;

 private:
  struct Pair {
    Index sent = 0, received = 0;
    std::string call;  ///< of the last send: "post_send", with its number and line
    Index number = 0;
    SourceLine where;
  };

  std::map<int, Pair> pairs_;  // by device
  bool is_known_ = true;
};

}  // namespace shard::runtime
