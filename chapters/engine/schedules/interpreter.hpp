#pragma once

/// How a schedule is read. The same actions mean something else to each reader: an engine computes and sends,
/// a clock adds up durations, a closed form adds up memory, the checker looks for mistakes. Each is an
/// Interpreter, and one of the two functions below drives it.

#include <vector>

#include "engine/schedules/schedule.hpp"

namespace shard {

/// What the actions of one device mean. A kind of action whose function is not overridden means nothing.
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

/// All devices' actions, side by side: each device goes on as far as it can, and waits for messages as in a
/// real run. `interpreters` has one for each device; none, and it is only seen who comes to the end.
/// Returns the devices that do not.
std::vector<Stuck> interpret_together(const Schedule& schedule, Sends sends,
                                      const std::vector<Interpreter*>& interpreters = {});

}  // namespace shard
