#pragma once

#include <algorithm>

#include "engine/proof/costs.hpp"

namespace shard {

/// The closed form of a long step, statement by statement: what a device allocates and frees, in elements,
/// which products it computes, and what it sends. It gives the most that is held at a time, the operations and
/// the traffic.
class Trace {
 public:
  /// On this device of a group.
  explicit Trace(const Setting& s) : devices_(s.devices), device_(s.device) {}

  void hold(Index elements) {
    held_ += elements;
    most_ = std::max(most_, held_);
  }
  void release(Index elements) { held_ -= elements; }
  /// Something that is freed at the end of the statement that made it.
  void pass(Index elements) {
    hold(elements);
    release(elements);
  }
  void product(Index m, Index k, Index n) { flops_ += product_flops(m, k, n); }
  /// A product whose result is held.
  void hold_product(Index m, Index k, Index n) {
    product(m, k, n);
    hold(m * n);
  }

  /// \name Collectives, with their buffers
  /// `slices`, `to`, `from`: the elements of each device. Along an axis other than the first, slices are packed
  /// in a buffer before they are sent, or unpacked from one.
  /// @{
  enum class Along { first_axis, other_axis };

  /// In the memory of the argument.
  void all_reduce(Index elements);
  /// This device's slice takes the place of the addend.
  void reduce_scatter(const std::vector<Index>& slices, Along axis = Along::first_axis);
  /// The same in two steps: a buffer is held in between.
  void begin_reduce_scatter(const std::vector<Index>& slices);
  void end_reduce_scatter(const std::vector<Index>& slices);
  /// The whole is held beside this device's slice.
  void all_gather(const std::vector<Index>& slices);
  /// The whole takes the place of the slice.
  void all_gather_in_place(const std::vector<Index>& slices, Along axis = Along::first_axis);
  /// What arrives takes the place of what leaves.
  void all_to_all(const std::vector<Index>& to, const std::vector<Index>& from,
                  Along axis = Along::first_axis);
  /// A message, unless it is empty.
  void send(Index elements);
  /// @}

  Index held() const { return held_; }
  /// Of a device that holds so many elements of parameters between steps.
  Costs costs(Index parameters) const;

 private:
  Traffic& sent(Collective c) { return sent_[static_cast<std::size_t>(c)]; }
  Index mine(const std::vector<Index>& slices) const { return slices[static_cast<std::size_t>(device_)]; }

  int devices_, device_;
  Index held_ = 0, most_ = 0, flops_ = 0;
  std::array<Traffic, num_collectives> sent_{};
};

}  // namespace shard
