#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/engines/sharded_engine.hpp"
#include "engine/layers/mixture_of_experts.hpp"
#include "engine/layers/tokens/tokens.hpp"
#include "engine/layouts/layouts.hpp"

namespace shard {

/// All keys and values that a block's queries may see, (n, G d), and their positions (n).
template <Layout L>
struct SeenKeys {
  const L& k;
  const L& v;
  std::span<const Index> at;
};

/// The cache of one sequence: the keys and values of each attention, for the tokens so far. They keep the
/// layout in which they are computed, so a device keeps its heads, its tokens, or its blocks. The engine
/// gives each attention a number, such as its block's.
class KeyValueCache {
 public:
  /// Whether tokens are kept. Turning it on or off forgets them.
  void keep(bool wanted) {
    is_on_ = wanted;
    attentions_.clear();
  }

  /// Appends an attention's new keys and values, if any, and returns all that it has. Without a cache, or
  /// without a number of the attention, nothing is kept, and the new ones are returned.
  template <Layout L>
  SeenKeys<L> seen(std::optional<Index> attention, const L& k, const L& v, std::span<const Index> at) {
    if (!is_on_ || !attention) return {k, v, at};
    std::shared_ptr<AnyEntry>& kept = attentions_[*attention];
    if (!kept) kept = std::make_shared<Entry<L>>();
    auto* found = dynamic_cast<Entry<L>*>(kept.get());
    if (found == nullptr)
      refuse(Code::internal, "keys of earlier tokens", "one layout for each attention", "another one");
    Entry<L>& entry = *found;
    if (at.empty() && !entry.k.is_empty()) return {entry.k, entry.v, entry.at};
    entry.k = joined(entry.k, k);
    entry.v = joined(entry.v, v);
    entry.at.insert(entry.at.end(), at.begin(), at.end());
    return {entry.k, entry.v, entry.at};
  }

 private:
  struct AnyEntry {
    virtual ~AnyEntry() = default;
  };
  template <Layout L>
  struct Entry : AnyEntry {
    L k, v;
    std::vector<Index> at;
  };

  /// The rows of a, and behind them those of b.
  template <Layout L>
  static L joined(const L& before, const L& more) {
    using detail::Access;
    const Tensor& added = Access::tensor(more);
    if (before.is_empty()) return relaid(added.clone(), more);
    const std::array<const Tensor*, 2> both = {&Access::tensor(before), &added};
    Shape global = more.global_shape();
    global[0] += before.global_shape()[0];
    return Access::make<L>(more.group(), concatenate(both, 0), std::move(global), Access::place(more));
  }

  bool is_on_ = false;
  std::map<Index, std::shared_ptr<AnyEntry>> attentions_;  // each in the layout of the engine's keys
};

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
  /// Tensors without elements lead to no choice.
  void note_choice(Index block, const ExpertChoice& choice, const Tokens& tokens);
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
  /// The position of the next pass's first token.
  Index next_position() const { return next_position_; }

 private:
  SeeLogits see_logits_;
  bool continues_ = false;
  Index next_position_ = 0;
  KeyValueCache cache_;
  std::vector<NotedChoice> chosen_;
};

/// Generates `count` tokens after a prompt, each the likeliest one, or the lowest of several. A token of `ends` is
/// the last one. A collective: all devices return the same. A device sends only its largest logit, with the token.
std::vector<Index> generate_greedily(LanguageModel& engine, Prompt prompt, Index count,
                                     const std::vector<Index>& ends = {});

}  // namespace shard
