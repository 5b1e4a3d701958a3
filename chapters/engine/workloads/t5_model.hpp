#pragma once

/// An encoder-decoder as T5 (Raffel et al. 2020): its sizes, and the names and shapes of its parameters.

#include <optional>
#include <string>
#include <vector>

#include "engine/layers/arithmetic.hpp"
#include "engine/layers/feed_forward.hpp"
#include "engine/layers/relative_positions.hpp"
#include "engine/workloads/initial_values.hpp"

namespace shard {

/// The two stacks of blocks. A decoder's block also attends to what the encoder's stack returns.
enum class Side { encoder, decoder };

/// One embedding for both stacks; in each, blocks of RMSNorm and attention, and of RMSNorm and a
/// feed-forward, then a last norm; the head.
struct T5Model {
  Index vocabulary = 0;  ///< V
  Index model_dim = 0;   ///< D
  Index heads = 0;       ///< H
  Index head_dim = 0;    ///< d
  Index hidden_dim = 0;  ///< F
  Index encoder_blocks = 0;
  Index decoder_blocks = 0;
  Index buckets = 32;  ///< of distances: of all keys in the encoder, of keys before a query in the decoder
  Index max_distance = 128;
  Hidden hidden = Hidden::relu;  ///< or geglu
  bool is_tied = true;           ///< the head is the embedding's table
  float epsilon = 1e-6F;
  std::optional<Index> start_token = std::nullopt;  ///< with which each target begins
  Arithmetic how = {};                              ///< scores are not scaled

  Index width() const { return heads * head_dim; }
  Index blocks(Side side) const { return side == Side::encoder ? encoder_blocks : decoder_blocks; }
  bool has_gate() const { return hidden == Hidden::geglu; }
  RelativePositions positions(Side side) const { return {buckets, max_distance, side == Side::encoder}; }
  /// "4 + 4 blocks of 48, 6 heads of 8, hidden 96, 61 tokens".
  std::string describe() const;
  /// All names and shapes, with bounds of initial values.
  std::vector<Parameter> parameters() const;
};

/// The network whose parameters these are, with heads of this width. Hyper-parameters that shapes do not tell
/// have their initial values. \throws Error file when a name or a shape is of no such network
T5Model t5_of(const Checkpoint& checkpoint, Index head_dim);

/// \name Parameters. Weights of products are stored (in, out)
/// The embedding (V, D) and the head (V, D) are named as a decoder's (decoder_model.hpp).
/// @{
/// Of a stack: "position_bias" (buckets, H) and "final_norm" (D).
std::string t5_name(Side side, const std::string& parameter);
/// Of a block: "norm" (D), "query", "key", "value" (D, H d) and "output" (H d, D), each with "self_" before
/// it; in the decoder also with "cross_"; "feed_forward_norm" (D), "up" (D, F), "down" (F, D), and "gate" (D,
/// F) where there is a gate.
std::string t5_name(Side side, Index block, const std::string& parameter);
/// @}

}  // namespace shard
