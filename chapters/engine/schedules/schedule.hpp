#pragma once

/// A schedule is data: for each device, what it does one after the other. Nothing here computes or sends.

#include <compare>
#include <string>
#include <vector>

#include "engine/device/split.hpp"

namespace shard {

/// What travels between stages: activations forward, gradients of them back.
enum class Flow { activation, gradient };

/// A tensor between two stages: of which micro-batch, and which stage reads it.
struct Message {
  Flow flow;
  Index micro_batch;
  int stage;

  /// The stage that makes it.
  int from_stage() const { return flow == Flow::activation ? stage - 1 : stage + 1; }
  auto operator<=>(const Message&) const = default;
};

/// One thing to do.
struct Action {
  enum class Kind {
    forward,           ///< of a micro-batch through a stage
    backward,          ///< both halves of it
    backward_input,    ///< dL/da only: what the stage before waits for
    backward_weights,  ///< dL/dw only: nobody waits for it
    post_send,
    post_receive,
    wait_sent,     ///< until a posted send has left
    wait_received  ///< until what a posted receive waits for is here
  };
  Kind kind;
  Index micro_batch;
  int stage;                     ///< that works; for messages: that reads it
  Flow flow = Flow::activation;  ///< of messages

  static Action on(Kind kind, const Message& m) { return {kind, m.micro_batch, m.stage, m.flow}; }
  Message message() const { return {flow, micro_batch, stage}; }
  bool is_work() const { return kind <= Kind::backward_weights; }
  auto operator<=>(const Action&) const = default;
};

/// "forward of micro-batch 3, stage 1".
std::string to_string(const Action& action);

/// What all devices do. Stage s, a number of layers in a row, is on device s mod devices: with as many stages
/// as devices each has one, with v times as many it has v, spread through the model.
struct Schedule {
  int devices = 1;
  int stages = 1;
  Index micro_batches = 1;
  std::vector<std::vector<Action>> actions;  ///< of each device

  const std::vector<Action>& of(int device) const { return actions[static_cast<std::size_t>(device)]; }
  int device_of(int stage) const { return stage % devices; }
  int sender(const Message& m) const { return device_of(m.from_stage()); }
  int receiver(const Message& m) const { return device_of(m.stage); }
};

/// The work of each device, in order, without messages.
using Work = std::vector<std::vector<Action>>;

/// Adds the messages. A receive is posted one piece of work before the one that needs it, so that it is under
/// way meanwhile; a send is posted as soon as there is something to send, and waited for before the next one
/// of the same flow, so that at most one of each is held. Between two devices, receives are posted in the
/// order of sends.
Schedule with_messages(int stages, Index micro_batches, const Work& work);

}  // namespace shard
