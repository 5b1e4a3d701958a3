#pragma once

#include <algorithm>

#include "engine/proof/costs.hpp"

namespace shard {

/// The closed form of a long step, statement by statement: what a device allocates and frees, in elements, and
/// which products it computes. It gives the most that is held at a time, and the operations.
class Trace {
 public:
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

  Index held() const { return held_; }
  Index peak_bytes() const { return most_ * bytes_per_element; }
  Index flops() const { return flops_; }

 private:
  Index held_ = 0, most_ = 0, flops_ = 0;
};

}  // namespace shard
