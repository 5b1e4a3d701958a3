#pragma once

#include <functional>
#include <map>

#include "engine/device/device.hpp"

namespace shard {

/// Mean squared error over the global batch: L = Σ (out − target)² / (B W), dL/dout = 2 (out − target) / (B
/// W).
///
/// The division is by the whole batch, whatever part of it this device sees; that is why sharded gradients
/// are summed and not averaged.
class MeanSquaredError {
 public:
  /// `target(rows)` gives those rows of the target, (rows, width).
  MeanSquaredError(Index batch, Index width, std::function<Tensor(Range rows)> target);

  /// dL/dout of these rows of the output; also adds up their part of the loss. Fits LossGradient.
  Tensor gradient(const Tensor& output, Index first_row);
  /// The loss over all rows seen on any device, each row once. A collective; the value is device 0's.
  double value(Communicator& group) const;

 private:
  Index elements_;
  std::function<Tensor(Range)> target_;
  std::map<Index, double> squares_;  // by first row, as devices with the same rows see the same piece
};

}  // namespace shard
