#pragma once

/// The messages of calls, and reductions. All tensor data is sent by these functions, which count the bytes. Tests
/// corrupt messages here.

#include <span>

#include "engine/device/runtime/call.hpp"

namespace shard::emu {

using runtime::Call;
using runtime::Channel;
using runtime::Group;
using runtime::Side;

/// Posts a message: `co_await call.messages()` returns when it is complete, and its memory must not change before.
/// Empty messages are neither sent nor received. In a send or a receive, `message` is the number of the message
/// between the two devices, from 1 on, so that receives may be posted in any order; in a collective it is 0.
void send_values(Call& call, int to, std::span<const float> values, Index message = 0);
void receive_values(Call& call, int from, std::span<float> values, Index message = 0);
/// An empty message, as a signal. The ledger counts it.
void send_token(Call& call, int to);
void receive_token(Call& call, int from);

/// accumulator = accumulator (op) addend, elementwise. avg adds; finish_average divides.
void combine(std::span<float> accumulator, std::span<const float> addend, ReduceOp op);
/// Divides a sum by the number of devices for avg. Does nothing for other operations.
void finish_average(std::span<float> sum, ReduceOp op, int devices);

/// Gets each message before it is sent, and may replace its content. Tests use it to corrupt messages.
class MessageFilter {
 public:
  virtual ~MessageFilter() = default;
  /// Returns what is sent in place of a message's values. Its memory must stay valid until the message has
  /// arrived.
  virtual std::span<const float> passed(std::span<const float> values) = 0;
};

/// Filters all messages of this device from now on, in every group; nullptr removes the filter.
void set_message_filter(MessageFilter* filter);

}  // namespace shard::emu
