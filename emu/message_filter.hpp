#pragma once

#include <span>

namespace shard::emu {

/// Gets each message before a device sends it, and may change its content. Tests use it to corrupt messages.
class MessageFilter {
 public:
  virtual ~MessageFilter() = default;
  /// Called for each message with content. Returns what is sent in its place; this memory must stay valid
  /// until the message has arrived.
  virtual std::span<const float> passed(std::span<const float> values) = 0;
};

/// All messages of this device pass it from now on, in every group; none of them with nullptr.
void set_message_filter(MessageFilter* filter);

}  // namespace shard::emu
