#pragma once

/// An encoder-decoder like T5 (Raffel et al. 2020): its sizes, and the names and shapes of its parameters.

#include <optional>
#include <string>
#include <vector>

#include "engine/layers/arithmetic.hpp"
#include "engine/layers/attention.hpp"
#include "engine/layers/feed_forward.hpp"
#include "engine/weights/foreign_model.hpp"
#include "engine/workloads/initial_values.hpp"

namespace shard {

/// The two stacks of blocks. A decoder's block also attends to the encoder's output.
enum class Side { encoder, decoder };

/// One embedding for both stacks. Each stack has blocks of RMSNorm and attention, then RMSNorm and a
/// feed-forward, and a last norm. Then comes the head.
struct T5Model {
  Index vocabulary = 0;  ///< V
  Index model_dim = 0;   ///< D
  Index heads = 0;       ///< H
  Index head_dim = 0;    ///< d
  Index hidden_dim = 0;  ///< F
  Index encoder_blocks = 0;
  Index decoder_blocks = 0;
  Index buckets = 32;  ///< of all distances in the encoder; of distances to earlier keys in the decoder
  Index max_distance = 128;
  Hidden hidden = Hidden::relu;  ///< or geglu
  bool is_tied = true;           ///< the head is the embedding's table
  float epsilon = 1e-6F;
  std::optional<Index> start_token = std::nullopt;  ///< the first token of each target
  Arithmetic how = {};                              ///< scores are not scaled

  Index width() const { return heads * head_dim; }
  Index blocks(Side side) const { return side == Side::encoder ? encoder_blocks : decoder_blocks; }
  bool has_gate() const { return hidden == Hidden::geglu; }
  RelativePositions positions(Side side) const { return {buckets, max_distance, side == Side::encoder}; }
  /// "4 + 4 blocks of 48, 6 heads of 8, hidden 96, 61 tokens".
  std::string describe() const;
  /// The names and shapes of all parameters, with the bounds of initial values.
  std::vector<Parameter> parameters() const;
};

/// The network that has these parameters, with heads of this width. Hyper-parameters that shapes do not
/// determine have their default values. \throws Error file when a name or a shape is not such a network's
T5Model t5_of(const Checkpoint& checkpoint, Index head_dim);

/// \name Parameters. Weights of products are stored (in, out)
/// The embedding (V, D) and the head (V, D) are named as a decoder's (decoder/model.hpp).
/// @{
/// A parameter of a stack: "position_bias" (buckets, H) or "final_norm" (D).
std::string t5_name(Side side, const std::string& parameter);
/// A parameter of a block. Of attention: "norm" (D), "query", "key" and "value" (D, H d), and "output" (H d,
/// D), with the prefix "self_" or, in the decoder, "cross_". Of the feed-forward: "feed_forward_norm" (D),
/// "up" (D, F), "down" (F, D), and "gate" (D, F) if there is a gate.
std::string t5_name(Side side, Index block, const std::string& parameter);
/// @}

/// A network of the family t5, as Hugging Face's `save_pretrained` writes it. It has a head of its own if its
/// files have one that differs from the embedding. \throws Error file for another family, for unknown
/// hyper-parameters that would change results, for stacks with tables of their own, and for parameters whose
/// shapes do not fit
T5Model t5_model(const ForeignModel& model, Reading reading = Reading::values);
/// The stored names of its parameters. `table`: that of the embedding.
ForeignNames t5_names(const T5Model& model, const std::string& table = "shared.weight");
/// The name under which its embedding is stored: files may keep any of its names. \throws Error file
std::string t5_table(const ForeignModel& model, const T5Model& network);

}  // namespace shard
