#pragma once

#include <functional>
#include <map>

#include "engine/device/device.hpp"

namespace shard {

/// A loss that devices add up, piece by piece. The host reads the pieces when all are there. Devices with the
/// same rows see the same piece, which counts once.
class LossSum {
 public:
  /// The part of the rows from `first_row` on.
  void add(Index first_row, Later<double> part) { parts_.insert_or_assign(first_row, std::move(part)); }
  /// The sum over all pieces seen on any device. A collective; the value is device 0's.
  double total(Communicator& group) const;

 private:
  std::map<Index, Later<double>> parts_;  // by first row
};

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
  LossSum squares_;
};

/// The mean loss over all tokens of the global batch that have a label, and its derivative by each token's
/// loss.
class MeanTokenLoss {
 public:
  explicit MeanTokenLoss(Index labelled) : labelled_(labelled) {}

  /// dL/dloss of these tokens, (rows, 1); also adds up their losses, which are 0 without a label. Fits
  /// LossGradient.
  Tensor gradient(const Tensor& losses, Index first_row);
  /// The mean loss. A collective; the value is device 0's.
  double value(Communicator& group) const { return losses_.total(group) / static_cast<double>(labelled_); }

 private:
  Index labelled_;
  LossSum losses_;
};

}  // namespace shard
