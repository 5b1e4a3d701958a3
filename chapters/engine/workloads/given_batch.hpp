#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "engine/checkpoint.hpp"
#include "engine/host_tensor.hpp"

namespace shard {

class ShardedEngine;
class Workload;

/// What to say of an input of this width, in brackets, where it does not fit; or nothing.
using InputHint = std::function<std::string(Index width)>;

/// A batch that a file holds, for `gradients`, and what a step makes of it beside gradients.
class GivenBatch {
 public:
  virtual ~GivenBatch() = default;
  /// Of the input.
  virtual Index rows() const = 0;
  virtual Tensor input(Range rows) const = 0;
  /// To be called before the step: an engine may be asked for more than its output.
  virtual void watch(ShardedEngine& /*engine*/) {}
  /// dL/dout of a piece of the output, which it notes. Fits LossGradient.
  virtual Tensor output_grad(const Tensor& output, Index first_row) = 0;
  /// What it has noted, whole, by name. A collective; device 0's counts.
  virtual std::map<std::string, HostTensor> results(Communicator& group) const = 0;
};

/// Pieces of a matrix as they come, then whole on device 0. A piece has some rows, and columns from a first one
/// on.
class MatrixPieces {
 public:
  void add(const Tensor& piece, const std::vector<Index>& rows, Index first_column = 0);
  void add(const Tensor& piece, Index first_row);
  /// A collective. `shape` has the matrix's elements.
  HostTensor gather(Communicator& group, const Shape& shape, Index columns) const;

 private:
  std::string bytes_;
};

/// `input` and `output_grad`, of one number of rows and the network's widths; the result is "output".
std::unique_ptr<GivenBatch> input_and_output_grad(std::unique_ptr<Checkpoint> file, const Workload& network,
                                                  const InputHint& hint);
/// `input_ids` and `labels`, (B, S), already aligned; the label -100 is ignored. Results are "logits" (B, S, V),
/// and "loss", a mean over the tokens that have a label. The network's engine must be a LanguageModel.
/// \throws Error file for ids and labels outside the vocabulary, and sequences longer than `positions`
std::unique_ptr<GivenBatch> ids_and_labels(std::unique_ptr<Checkpoint> file, Index vocabulary,
                                           Index positions);
/// The same of an encoder-decoder: `input_ids` (B, n), which the encoder reads, and `decoder_input_ids` and
/// `labels`, (B, S). The input is as SourceAndTarget reads it.
std::unique_ptr<GivenBatch> sources_and_targets(std::unique_ptr<Checkpoint> file, Index vocabulary);

}  // namespace shard
