#pragma once

/// Interpreters of a schedule. Each one does something else with the actions: an engine computes and sends, a
/// clock adds up durations, a closed form adds up memory, the checker looks for mistakes. One of the two
/// functions below calls an interpreter for each action.

#include <vector>

#include "engine/schedules/schedule.hpp"

namespace shard {

/// Does something for each action of one device. It ignores the actions whose function it does not override.
class Interpreter {
 public:
  virtual ~Interpreter() = default;

  /// Calls the function below that belongs to the action's kind.
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

/// One device's actions, one after the other.
void interpret(const Schedule& schedule, int device, Interpreter& interpreter);

/// How a send behaves.
enum class Sends {
  posted,   ///< goes on at once; waiting for it ends when its receive has been posted
  blocking  ///< returns when the receiver has come to the point where it waits for it
};

/// A device that cannot go on: what it is about to do, and which device it waits for.
struct Stuck {
  int device;
  Action action;
  int waits_for;
};

/// Runs all devices' actions together. Each device goes on as far as it can, and waits for messages as in a
/// real run. `interpreters` has one interpreter for each device, or is empty if only the result matters.
/// Returns the devices that do not come to their end.
std::vector<Stuck> interpret_together(const Schedule& schedule, Sends sends,
                                      const std::vector<Interpreter*>& interpreters = {});

}  // namespace shard
