#pragma once

/// A decoder like Mistral's (Jiang et al. 2023) and Mixtral's (Jiang et al. 2024): its sizes, and the names and
/// shapes of its parameters.

#include <optional>
#include <string>
#include <vector>

#include "engine/layers/arithmetic.hpp"

namespace shard {

class Checkpoint;
struct Parameter;  // initial_values.hpp

/// Embedding; blocks of RMSNorm, rotary grouped-query attention, RMSNorm and a feed-forward, SwiGLU or a
/// mixture of experts; a last norm; the head.
struct DecoderModel {
  Index vocabulary = 0;  ///< V
  Index model_dim = 0;   ///< D
  Index heads = 0;       ///< H query heads
  Index key_heads = 0;   ///< G key-value heads; divides H
  Index head_dim = 0;    ///< d, even
  Index hidden_dim = 0;  ///< F, of each expert
  Index num_blocks = 0;
  Index experts = 0;                           ///< E; 0: a plain feed-forward
  Index top_k = 0;                             ///< experts chosen by each token
  bool has_bias = false;                       ///< a bias is added to queries, keys and values
  bool is_tied = false;                        ///< the head is the embedding's table
  std::optional<Index> window = std::nullopt;  ///< a token sees this number of tokens, itself included
  Index positions = Index{1} << 20;            ///< the longest sequence
  double rope_base = 10000;
  float epsilon = 1e-5F;
  Arithmetic how = {};

  Index query_width() const { return heads * head_dim; }
  Index key_width() const { return key_heads * head_dim; }
  /// The number of query heads that share a key-value head.
  Index shared() const { return heads / key_heads; }
  bool is_mixture() const { return experts > 0; }
  /// "5 blocks of 48, 6 heads of 8 (3 key-value heads), 7 experts of 96".
  std::string describe() const;
  /// The names and shapes of all parameters, with the bounds of initial values.
  std::vector<Parameter> parameters() const;
};

/// The network that has these parameters, with heads of this width. Hyper-parameters that shapes do not
/// determine have their default values. \throws Error file when a name or a shape is not a decoder's
DecoderModel decoder_of(const Checkpoint& checkpoint, Index head_dim);

/// \throws Error file unless a checkpoint has exactly these parameters, in these shapes, those of a `kind`
void require_parameters(const Checkpoint& checkpoint, const std::vector<Parameter>& expected,
                        const std::string& kind);
/// \name Parameters of a decoder. Weights of products are stored (in, out)
/// @{
inline const char* embedding_name() {
  return "embedding";  // (V, D)
}
inline const char* head_name() {
  return "head";  // (V, D), as the embedding: the logits are x headᵀ
}
inline const char* final_norm_name() {
  return "final_norm";  // (D)
}
/// A parameter of a block: "attention_norm" (D), "query" (D, H d), "key" and "value" (D, G d), "output" (H d,
/// D), "feed_forward_norm" (D), and "router" (D, E) of a mixture. Biases are matrices of one row: "query_bias"
/// (1, H d), "key_bias" and "value_bias" (1, G d).
std::string block_name(Index block, const std::string& parameter);
/// A parameter of a block's feed-forward: "gate" and "up" (D, F), "down" (F, D). Each expert has all three.
std::string feed_forward_name(const DecoderModel& model, Index block, Index expert,
                              const std::string& parameter);
/// @}

}  // namespace shard
