/// send, receive, post_send and post_receive: a tensor from one member to another one.

#include "engine/device/runtime/collectives/collectives.hpp"
#include "engine/device/runtime/operations/tensor_memory.hpp"
#include "engine/device/runtime/watchdog/message_counts.hpp"

namespace shard::runtime {

namespace {

void count_sent(Call& call) {
  const Request& r = call.request;
  MessageCounts::instance().note_sent(call.group().member(call.peer()), call.name, r.call, r.where);
}

void count_received(Call& call) {
  MessageCounts::instance().note_received(call.group().member(call.peer()));
  if (call.request.arrives) call.tensor = TensorMemory::make(*call.request.arrives);
}

Traffic sent_message(const Call& call) {
  return message_of(call.tensor);
}

}  // namespace

const Definition rows::send = {
    .name = "send", .prepare = count_sent, .body = runtime::send, .sent = sent_message};
const Definition rows::post_send = {
    .name = "post_send", .prepare = count_sent, .body = runtime::send, .sent = sent_message};
const Definition rows::receive = {.name = "receive", .prepare = count_received, .body = runtime::receive};
const Definition rows::post_receive = {
    .name = "post_receive", .prepare = count_received, .body = runtime::receive};

}  // namespace shard::runtime
