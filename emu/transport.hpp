#pragma once

/// Tensor data between devices. All collectives go through here: bytes are counted here and faults are
/// planted here.

#include <list>
#include <span>
#include <vector>

#include "emu/faults.hpp"
#include "engine/device/ledger.hpp"
#include "engine/device/runtime/control.hpp"

namespace shard::emu {

using runtime::Channel;
using runtime::control;
using runtime::Posts;
using runtime::Side;

class Transport {
 public:
  Transport();

  /// Posts tensor data. Memory stays untouched until the posts are complete. Empty messages are not sent, on
  /// either side.
  void post_send(Posts& posts, Collective call, int to, std::span<const float> values);
  void post_receive(Posts& posts, int from, std::span<float> values);
  /// A message without content, to tell that something was reached; counted as a message.
  void post_token(Posts& posts, Collective call, int to);
  void post_token_receive(Posts& posts, int from);
  /// The number of the next letter to, or from, a device.
  Index next_letter_to(int device) { return letters_to_[static_cast<std::size_t>(device)]++; }
  Index next_letter_from(int device) { return letters_from_[static_cast<std::size_t>(device)]++; }
  /// The data of a letter, found by its number: places for it may be posted in any order.
  void post_content(Posts& posts, int to, Index letter, std::span<const float> values);
  void post_content_receive(Posts& posts, int from, Index letter, std::span<float> values);

  /// \name For tests
  /// @{
  void plant(const Faults& faults);
  bool leaves_out(Index call) const { return faults_.leave_out_call == call; }
  std::int64_t messages() const { return messages_; }
  /// @}

 private:
  /// The values as they are, or corrupted when this is the message to corrupt.
  std::span<const float> tampered(std::span<const float> values);
  void send_values(Posts& posts, Channel channel, int tag, int to, std::span<const float> values);
  void receive_values(Posts& posts, Channel channel, int tag, int from, std::span<float> values);

  std::vector<Index> letters_to_, letters_from_;
  Faults faults_;
  std::int64_t messages_ = 0;
  std::list<std::vector<float>> corrupted_;  // kept, as a message may still be on its way
};

Transport& transport();

}  // namespace shard::emu
