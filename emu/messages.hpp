#pragma once

/// The messages of a call, and the arithmetic on what arrives. All tensor data goes through here: bytes are
/// counted here, and tests corrupt messages here.

#include <span>

#include "engine/device/runtime/call.hpp"

namespace shard::emu {

using runtime::Call;
using runtime::Channel;
using runtime::Group;
using runtime::Side;

/// Posts of one step of a call: `co_await call.messages()` returns when they are complete. Memory stays
/// untouched until then. Empty messages are not sent, on either side. `message` numbers the messages between
/// two devices, from 1 on, so that places for them may be posted in any order; 0 in a collective.
void send_values(Call& call, int to, std::span<const float> values, Index message = 0);
void receive_values(Call& call, int from, std::span<float> values, Index message = 0);
/// A message without content, to tell that something was reached; counted as a message.
void send_token(Call& call, int to);
void receive_token(Call& call, int from);

/// accumulator = accumulator (op) addend, elementwise; avg adds, its division comes at the end.
void combine(std::span<float> accumulator, std::span<const float> addend, ReduceOp op);
/// The division that turns a sum into avg; nothing for other operations.
void finish_average(std::span<float> sum, ReduceOp op, int devices);

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
