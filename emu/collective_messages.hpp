#pragma once

/// Tensor data in a collective: its messages, and the arithmetic on what arrives.

#include "emu/transport.hpp"
#include "engine/device/runtime/call.hpp"

namespace shard::emu {

using runtime::Call;

/// Posts of one step of a call: `co_await call.messages()` returns when they are complete.
inline void send_values(Call& call, int to, std::span<const float> values) {
  transport(call.group()).post_send(call.group(), call.messages(), call.collective(), to, values);
}
inline void receive_values(Call& call, int from, std::span<float> values) {
  transport(call.group()).post_receive(call.group(), call.messages(), from, values);
}
inline void send_token(Call& call, int to) {
  transport(call.group()).post_token(call.group(), call.messages(), call.collective(), to);
}
inline void receive_token(Call& call, int from) {
  transport(call.group()).post_token_receive(call.group(), call.messages(), from);
}

/// accumulator = accumulator (op) addend, elementwise; avg adds, its division comes at the end.
void combine(std::span<float> accumulator, std::span<const float> addend, ReduceOp op);
/// The division that turns a sum into avg; nothing for other operations.
void finish_average(std::span<float> sum, ReduceOp op, int devices);

}  // namespace shard::emu
