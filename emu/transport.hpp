#pragma once

/// Tensor data between devices. All collectives go through here: bytes are counted here and faults are
/// planted here.

#include <list>
#include <span>
#include <vector>

#include "emu/message_filter.hpp"
#include "engine/device/ledger.hpp"
#include "engine/device/runtime/group.hpp"

namespace shard::emu {

using runtime::Channel;
using runtime::Group;
using runtime::Posts;
using runtime::Side;

/// How a group sends tensor data.
class Transport : public runtime::DataPlane {
 public:
  explicit Transport(const Group& group);

  /// Posts tensor data. Memory stays untouched until the posts are complete. Empty messages are not sent, on
  /// either side.
  void post_send(Group& group, Posts& posts, Collective call, int to, std::span<const float> values);
  void post_receive(Group& group, Posts& posts, int from, std::span<float> values);
  /// A message without content, to tell that something was reached; counted as a message.
  void post_token(Group& group, Posts& posts, Collective call, int to);
  void post_token_receive(Group& group, Posts& posts, int from);
  /// The number of the next message to, or from, a device.
  Index next_message_to(int device) { return messages_to_[static_cast<std::size_t>(device)]++; }
  Index next_message_from(int device) { return messages_from_[static_cast<std::size_t>(device)]++; }
  /// The data of a message, found by its number: places for it may be posted in any order.
  void post_content(Group& group, Posts& posts, int to, Index message, std::span<const float> values);
  void post_content_receive(Group& group, Posts& posts, int from, Index message, std::span<float> values);

 private:
  std::vector<Index> messages_to_, messages_from_;
};

/// The transport of a group.
Transport& transport(Group& group);

}  // namespace shard::emu
