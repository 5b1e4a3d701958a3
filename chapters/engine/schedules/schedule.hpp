#pragma once

/// A schedule is data: a list of actions for each device, in order. This file computes and sends nothing.

#include <compare>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/error.hpp"
#include "engine/device/split.hpp"

namespace shard {

/// What stages send each other: activations go forward, their gradients go back.
enum class Flow { activation, gradient };

/// A message between two stages: a micro-batch's tensor, and the stage that reads it.
struct Message {
  Flow flow;
  Index micro_batch;
  int stage;

  /// The stage that sends it.
  int from_stage() const { return flow == Flow::activation ? stage - 1 : stage + 1; }
  auto operator<=>(const Message&) const = default;
};

std::string to_string(const Message& message);

/// Takes what is kept for a message, or for a micro-batch and a stage, out of its map. \throws Error argument if there
/// is none: nobody put it there, or it was taken before
/// @{
template <class Value>
Value taken(std::map<Message, Value>& from, const Message& m) {
  auto found = from.extract(m);
  if (!found) refuse(Code::argument, "pipeline", "the " + to_string(m) + ", received or computed", "none");
  return std::move(found.mapped());
}
template <class Value>
Value taken(std::map<std::pair<Index, int>, Value>& from, std::pair<Index, int> piece) {
  auto found = from.extract(piece);
  if (!found)
    refuse(
        Code::argument, "pipeline",
        "what stage " + std::to_string(piece.second) + " kept of micro-batch " + std::to_string(piece.first),
        "none");
  return std::move(found.mapped());
}
/// @}

/// One entry of a device's list.
struct Action {
  enum class Kind {
    forward,           ///< of a micro-batch through a stage
    backward,          ///< both halves: dL/da and dL/dw
    backward_input,    ///< dL/da, for which the stage before waits
    backward_weights,  ///< dL/dw, for which no stage waits
    post_send,
    post_receive,
    wait_sent,     ///< waits for a posted send
    wait_received  ///< waits for a posted receive
  };
  Kind kind;
  Index micro_batch;
  int stage;                     ///< the stage that works, or that reads the message
  Flow flow = Flow::activation;  ///< of messages

  static Action on(Kind kind, const Message& m) { return {kind, m.micro_batch, m.stage, m.flow}; }
  Message message() const { return {flow, micro_batch, stage}; }
  bool is_work() const { return kind <= Kind::backward_weights; }
  auto operator<=>(const Action&) const = default;
};

/// "forward of micro-batch 3, stage 1".
std::string to_string(const Action& action);

/// The actions of all devices. A stage is a number of consecutive layers. Stage s is on device s mod devices, so
/// with v times as many stages as devices, each device has v stages, from different parts of the model.
struct Schedule {
  int devices = 1;
  int stages = 1;
  Index micro_batches = 1;
  std::vector<std::vector<Action>> actions;  ///< by device

  const std::vector<Action>& of(int device) const { return actions[static_cast<std::size_t>(device)]; }
  int device_of(int stage) const { return stage % devices; }
  int sender(const Message& m) const { return device_of(m.from_stage()); }
  int receiver(const Message& m) const { return device_of(m.stage); }
};

/// The work of each device, in order, without messages.
using Work = std::vector<std::vector<Action>>;

/// Adds the messages to the work.
/// - A receive is posted one piece of work before the piece that needs it, so that the message arrives while
///   the device computes.
/// - A send is posted as soon as its tensor is there. It is waited for before the next send of the same flow,
///   so that a device holds at most one tensor of each flow for sending.
/// - Between two devices, receives are posted in the order of sends.
Schedule with_messages(int stages, Index micro_batches, const Work& work);
/// The schedule, if `check` proves it (checker.hpp). \throws Error internal
Schedule proved(Schedule schedule);

}  // namespace shard
