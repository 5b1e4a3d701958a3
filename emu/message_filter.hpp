#pragma once

#include <span>

namespace shard::emu {

/// Stands where messages leave a device, and may change what they say: for tests that corrupt them.
class MessageFilter {
 public:
  virtual ~MessageFilter() = default;
  /// Called for each message with content: what is sent in its place. It stays there until the message has
  /// arrived.
  virtual std::span<const float> passed(std::span<const float> values) = 0;
};

/// All messages of this device pass it from now on, in every group; none of them with nullptr.
void set_message_filter(MessageFilter* filter);

}  // namespace shard::emu
