#pragma once

/// Sends the activations of successive requests from stage to stage, for inference.

#include <deque>

#include "engine/engines/sharded_engine.hpp"

namespace shard {

/// Posts a send at once, and receives a tensor when the stage needs it.
class Conveyor {
 public:
  /// With more than `in_flight` sends in flight, pass_on waits for the oldest one.
  Conveyor(Communicator& group, int in_flight) : group_(group), in_flight_(in_flight) {}

  /// Sends a tensor to a device. A tensor for this device is stored until it is taken.
  void pass_on(int to, Tensor t) {
    if (to == group_.device_id()) return here_.push_back(std::move(t));
    sent_.push_back(group_.post_send(to, std::move(t)));
    if (static_cast<int>(sent_.size()) > in_flight_) {
      sent_.front().wait();
      sent_.pop_front();
    }
  }

  /// The next tensor that a device has passed on to this one, in order.
  Tensor take_from(int from) {
    if (from != group_.device_id()) return group_.receive(from);
    Tensor t = std::move(here_.front());
    here_.pop_front();
    return t;
  }

  /// Waits for all sends.
  void finish() {
    for (Future<>& sent : sent_) sent.wait();
    sent_.clear();
  }

 private:
  Communicator& group_;
  int in_flight_;
  std::deque<Tensor> here_;
  std::deque<Future<>> sent_;
};

}  // namespace shard
