#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "engine/basics/ranges.hpp"
#include "engine/weights/checkpoint.hpp"

namespace shard {

class ShardedEngine;
class Workload;

/// The hint in an error about an input of this width, in brackets; or empty.
using InputHint = std::function<std::string(Index width)>;

/// A batch from a file, for `gradients`, and the results of its step other than gradients.
class GivenBatch {
 public:
  virtual ~GivenBatch() = default;
  /// The number of rows of the input.
  virtual Index rows() const = 0;
  virtual Tensor input(Range rows) const = 0;
  /// Called before the step. An engine may have to return more than its output.
  virtual void watch(ShardedEngine& /*engine*/) {}
  /// dL/dout of a part of the output, which is recorded for `results`. Fits LossGradient.
  virtual Tensor output_grad(const Tensor& output, Index first_row) = 0;
  /// The recorded results, whole, by name. A collective; the value is device 0's.
  virtual std::map<std::string, HostTensor> results(Communicator& group) const = 0;
};

/// Collects parts of a matrix, and makes it whole on device 0. A part has some rows, and the columns from a
/// first one on.
class MatrixPieces {
 public:
  void add(const Tensor& piece, const std::vector<Index>& rows, Index first_column = 0);
  void add(const Tensor& piece, Index first_row);
  /// A collective. `shape` has as many elements as the matrix.
  HostTensor gather(Communicator& group, const Shape& shape, Index columns) const;

 private:
  std::string bytes_;
};

/// A batch of `input` and `output_grad`, with equal rows and the network's widths. Result: "output".
std::unique_ptr<GivenBatch> input_and_output_grad(std::unique_ptr<Checkpoint> file, const Workload& network,
                                                  const InputHint& hint);
/// A batch of `input_ids` and `labels`, (B, S), already aligned; the label -100 is ignored. Results: "logits"
/// (B, S, V) and "loss", the mean over the tokens with a label. The network's engine must be a LanguageModel.
/// \throws Error file for ids and labels outside the vocabulary, and sequences longer than `positions`
std::unique_ptr<GivenBatch> ids_and_labels(std::unique_ptr<Checkpoint> file, Index vocabulary,
                                           Index positions);
/// A batch of an encoder-decoder: `input_ids` (B, n) for the encoder, and `decoder_input_ids` and `labels`,
/// (B, S). The input has the format of SourceAndTarget.
std::unique_ptr<GivenBatch> sources_and_targets(std::unique_ptr<Checkpoint> file, Index vocabulary);

}  // namespace shard
