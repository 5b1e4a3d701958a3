#include "engine/device/runtime/message_counts.hpp"

#include <fmt/format.h>

#include "engine/device/device.hpp"
#include "engine/device/runtime/control_plane.hpp"
#include "engine/device/this_device.hpp"

namespace shard::runtime {

MessageCounts& MessageCounts::instance() {
  return device().part<MessageCounts>();
}

MessageCounts::Pair& MessageCounts::of(int device) {
  const auto i = static_cast<std::size_t>(device);
  if (pairs_.size() <= i) pairs_.resize(i + 1);
  return pairs_[i];
}

void MessageCounts::note_sent(int to, std::string_view call, Index number, SourceLine where) {
  Pair& pair = of(to);
  ++pair.sent;
  pair.call = call;
  pair.number = number;
  pair.where = where;
}

std::vector<Index> MessageCounts::received(int num_devices) const {
  std::vector<Index> counts(static_cast<std::size_t>(num_devices), is_known_ ? 0 : -1);
  for (std::size_t d = 0; is_known_ && d < pairs_.size(); ++d) counts[d] = pairs_[d].received;
  return counts;
}

std::string MessageCounts::left_over(const std::vector<Index>& received) const {
  std::string lines;
  for (std::size_t d = 0; is_known_ && d < pairs_.size(); ++d) {
    const Pair& pair = pairs_[d];
    if (received[d] >= 0 && received[d] < pair.sent)
      lines += fmt::format("\n  device {} sent {} to device {}, which received {}: its last is {} ({})",
                           ControlPlane::instance().id(), pair.sent, d, received[d], pair.call,
                           place_of_call(pair.number, pair.where));
  }
  return lines;
}

}  // namespace shard::runtime
