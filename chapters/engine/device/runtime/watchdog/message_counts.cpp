#include "engine/device/runtime/watchdog/message_counts.hpp"

#include <fmt/format.h>

#include "engine/device/device.hpp"
#include "engine/device/this_device.hpp"

namespace shard::runtime {

MessageCounts& MessageCounts::instance() {
  return device().state<MessageCounts>();
}

void MessageCounts::note_sent(int to, std::string_view call, Index number, SourceLine where) {
  Pair& pair = pairs_[to];
  ++pair.sent;
  pair.call = call;
  pair.number = number;
  pair.where = where;
}

std::vector<Index> MessageCounts::received(int num_devices) const {
  std::vector<Index> counts(static_cast<std::size_t>(num_devices), is_known_ ? 0 : -1);
  for (const auto& [d, pair] : pairs_)
    if (is_known_) counts[static_cast<std::size_t>(d)] = pair.received;
  return counts;
}

std::string MessageCounts::unreceived(const std::vector<Index>& received) const {
  std::string lines;
  for (const auto& [d, pair] : pairs_) {
    const Index of_peer = received[static_cast<std::size_t>(d)];
    if (is_known_ && of_peer >= 0 && of_peer < pair.sent)
      lines += fmt::format("\n  device {} sent {} to device {}, which received {}: its last is {} ({})",
                           this_device(), pair.sent, d, of_peer, pair.call,
                           place_of_call(pair.number, pair.where));
  }
  return lines;
}

}  // namespace shard::runtime
