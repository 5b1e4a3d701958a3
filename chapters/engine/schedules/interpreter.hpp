#pragma once

/// Interpreters of a schedule. The engine's computes and sends, the clock's adds up durations, the closed form's
/// adds up memory, and the checker's looks for mistakes.

#include <vector>

#include "engine/schedules/schedule.hpp"

namespace shard {

/// Has a function for each kind of action, which does nothing unless a derived class overrides it.
class Interpreter {
 public:
  virtual ~Interpreter() = default;

  /// Calls the function of the action's kind.
  void act(const Action& action);

 protected:
  /// \name Work on a micro-batch in a stage
  /// @{
  virtual void forward(Index /*micro_batch*/, int /*stage*/) {}
  /// Both halves; by default one after the other.
  virtual void backward(Index micro_batch, int stage);
  virtual void backward_input(Index /*micro_batch*/, int /*stage*/) {}
  virtual void backward_weights(Index /*micro_batch*/, int /*stage*/) {}
  /// @}

  /// \name Messages
  /// @{
  virtual void post_send(const Message&) {}
  virtual void post_receive(const Message&) {}
  virtual void wait_sent(const Message&) {}
  virtual void wait_received(const Message&) {}
  /// @}
};

/// Interprets one device's actions, in order.
void interpret(const Schedule& schedule, int device, Interpreter& interpreter);

enum class Sends {
  posted,   ///< the call returns at once, and the wait for it when the receive has been posted
  blocking  ///< the call returns when the receiver waits for the message
};

/// A device that waits for ever: its next action, and the device that it waits for.
struct Stuck {
  int device;
  Action action;
  int waits_for;
};

/// Interprets the actions of all devices together. Each device waits for messages as in a real run. `interpreters`
/// has one interpreter for each device, or is empty if only the result matters. Returns the devices that wait for
/// ever.
std::vector<Stuck> interpret_together(const Schedule& schedule, Sends sends,
                                      const std::vector<Interpreter*>& interpreters = {});

}  // namespace shard
