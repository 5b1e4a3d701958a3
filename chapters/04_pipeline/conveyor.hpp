#pragma once

/// Inference: what travels from stage to stage while requests stream through.

#include <deque>

#include "engine/sharded_engine.hpp"

namespace shard::pipeline {

/// Tensors on their way around the devices, each sent on at once and received when it is needed.
class Conveyor {
 public:
  explicit Conveyor(Communicator& group) : group_(group) {}

  /// To a device; what stays here waits in line.
  void pass_on(int to, Tensor t) {
    if (to == group_.device_id()) return here_.push_back(std::move(t));
    sent_.push_back(group_.post_send(to, std::move(t)));
    if (static_cast<int>(sent_.size()) > group_.num_devices()) {  // the oldest has long arrived
      sent_.front().wait();
      sent_.pop_front();
    }
  }

  /// What a device has passed on to this one, in order.
  Tensor take_from(int from) {
    if (from != group_.device_id()) return group_.receive(from);
    Tensor t = std::move(here_.front());
    here_.pop_front();
    return t;
  }

  /// Waits until everything has left.
  void finish() {
    for (Future<>& sent : sent_) sent.wait();
    sent_.clear();
  }

 private:
  Communicator& group_;
  std::deque<Tensor> here_;
  std::deque<Future<>> sent_;
};

}  // namespace shard::pipeline
