#pragma once

#include <functional>

#include "engine/engines/sharded_engine.hpp"
#include "engine/layers/expert_choice.hpp"
#include "engine/layers/tokens/key_value_cache.hpp"
#include "engine/layers/tokens/tokens.hpp"

namespace shard {

/// An engine of a language model. Its input is (B, 2 S): each row has the S ids of a sequence, and then its S
/// labels; or that of an encoder-decoder (tokens.hpp). Its output is the loss of each token, (B · S, 1), so
/// that the vocabulary may be divided: no device needs all logits.
class LanguageModel : public ShardedEngine {
 public:
  using ShardedEngine::ShardedEngine;

  /// Called in each forward pass with this device's logits, (rows, columns): of the rows of these tokens, and
  /// the columns of the vocabulary from `first_column` on.
  using SeeLogits = std::function<void(const Tensor& logits, const Tokens& tokens, Index first_column)>;
  void see_logits(SeeLogits see) { see_logits_ = std::move(see); }

  /// Sets whether forward passes continue one sequence: each pass has the next tokens, and the keys and values of
  /// earlier ones are kept. Each call forgets these. (For inference: see InferenceMode.) An encoder-decoder gets
  /// its source in the first pass, and a source without tokens in later ones.
  void continue_sequence(bool wanted) {
    continues_ = wanted;
    next_position_ = 0;
    cache_.keep(wanted);
  }

  /// The experts that a token chose in a block, largest logit first.
  struct NotedChoice {
    Index block, sequence, position;
    std::vector<Index> experts;  // (k)
  };
  /// The choices of the last step that this device noted.
  const std::vector<NotedChoice>& chosen_experts() const { return chosen_; }

  /// \name For an engine, and for the stages that it is made of
  /// @{
  KeyValueCache& cache() { return cache_; }
  /// To be called when a step begins, before any choice is noted.
  void forget_choices() { chosen_.clear(); }
  /// Notes a choice of experts by these tokens, if there is one. Each token is noted on one device or more.
  void note_choice(Index block, const ExpertChoice& choice, const Tokens& tokens) {
    if (choice.num_experts == 0) return;
    for (Index row = 0; row < tokens.rows(); ++row) {
      const auto first = choice.experts.begin() + row * choice.top_k();
      chosen_.push_back({block,
                         tokens.first_sequence + row / tokens.length,
                         tokens.positions[static_cast<std::size_t>(row % tokens.length)],
                         {first, first + choice.top_k()}});
    }
  }
  /// To be called with the logits (rows, vocabulary) of these tokens, before the loss is computed.
  template <Layout L>
  void show_logits(const L& z, const Tokens& tokens) const {
    Index first_column = 0;
    if constexpr (std::same_as<L, Sharded<1>>) first_column = z.offset();
    if constexpr (detail::LiesOnMesh<L>) first_column = z.ranges()[1].begin;
    if (see_logits_) see_logits_(z.local(), tokens, first_column);
  }
  /// @}

 protected:
  /// The tokens of an input, at the positions that they have in their sequences.
  Tokens read(const Tensor& input, Index vocabulary, SourceLine where = SourceLine::current()) {
    return placed(Tokens::read(input, vocabulary, 0, where));
  }
  /// The same for an encoder-decoder: the target's tokens continue the sequence.
  SourceAndTarget read_with_source(const Tensor& input, Index vocabulary,
                                   SourceLine where = SourceLine::current()) {
    auto [source, target] = SourceAndTarget::read(input, vocabulary, where);
    return {std::move(source), placed(std::move(target))};
  }
  /// Moves tokens behind those of the passes before.
  Tokens placed(Tokens tokens) {
    for (Index& position : tokens.positions) position += next_position_;
    if (continues_) next_position_ += tokens.length;
    return tokens;
  }
  bool continues() const { return continues_; }
  /// The position of the next pass's first token.
  Index next_position() const { return next_position_; }

 private:
  SeeLogits see_logits_;
  bool continues_ = false;
  Index next_position_ = 0;
  KeyValueCache cache_;
  std::vector<NotedChoice> chosen_;
};

}  // namespace shard
