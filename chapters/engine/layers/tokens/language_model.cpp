#include "engine/layers/tokens/language_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/device/books/memory.hpp"
#include "engine/engines/tape.hpp"

namespace shard {

namespace {

/// The largest logit of the last token on this device, and the token that it stands for.
class ArgmaxToken {
 public:
  explicit ArgmaxToken(Index last_position) : last_position_(last_position) {}

  void see(const Tensor& logits, const Tokens& tokens, Index first_column) {
    const auto last = std::ranges::find(tokens.positions, last_position_);
    if (tokens.sequences == 0 || last == tokens.positions.end()) return;
    const Index row = last - tokens.positions.begin();
    const std::vector<float> of_last = slice(logits, 0, row, row + 1).to_host();
    for (std::size_t i = 0; i < of_last.size(); ++i)
      if (of_last[i] > logit_) logit_ = of_last[i], token_ = first_column + static_cast<Index>(i);
  }

  /// The token of the largest logit of all devices. A collective.
  Index of_all(ShardedEngine& engine) const {
    const std::array<float, 2> mine = {logit_, static_cast<float>(token_)};
    const std::vector<float> all = engine.all_gather(Tensor::from_host({1, 2}, mine)).to_host();
    std::size_t best = 0;
    for (std::size_t i = 0; i < all.size(); i += 2)
      if (all[i] > all[best] || (all[i] == all[best] && all[i + 1] < all[best + 1])) best = i;
    return static_cast<Index>(all[best + 1]);
  }

 private:
  Index last_position_;
  float logit_ = -HUGE_VALF;
  Index token_ = 0;
};

Tensor input_of(const Prompt& sequence) {
  std::vector<float> numbers;
  if (sequence.source) {
    numbers.push_back(static_cast<float>(sequence.source->size()));
    numbers.insert(numbers.end(), sequence.source->begin(), sequence.source->end());
  }
  numbers.insert(numbers.end(), sequence.tokens.begin(), sequence.tokens.end());
  numbers.resize(numbers.size() + sequence.tokens.size(), static_cast<float>(Tokens::no_label));
  return Tensor::from_host({1, static_cast<Index>(numbers.size())}, numbers);
}

/// The part of a whole input that the engine takes on this device.
Tensor part_of(const ShardedEngine& engine, const Tensor& input) {
  const Range rows = engine.input_rows(input.extent(0));
  return slice(input, 0, rows.begin, rows.end);
}

/// While such an object lives, the engine continues one sequence. Its destructor makes the engine forget the
/// sequence, and the function that sees its logits.
class ContinuedSequence {
 public:
  explicit ContinuedSequence(LanguageModel& engine) : engine_(engine) { engine_.continue_sequence(true); }
  ~ContinuedSequence() {
    engine_.see_logits({});
    engine_.continue_sequence(false);
  }
  ContinuedSequence(const ContinuedSequence&) = delete;
  ContinuedSequence& operator=(const ContinuedSequence&) = delete;

 private:
  LanguageModel& engine_;
};

}  // namespace

std::vector<Index> generate_greedily(LanguageModel& engine, Prompt prompt, Index count,
                                     const std::vector<Index>& ends) {
  InferenceMode no_tape;
  const ContinuedSequence continued(engine);
  std::vector<Index> generated;
  Index length = 0;
  auto is_over = [&] {
    return static_cast<Index>(generated.size()) >= count ||
           (!generated.empty() && std::ranges::find(ends, generated.back()) != ends.end());
  };
  while (!is_over()) {
    length += static_cast<Index>(prompt.tokens.size());
    ArgmaxToken likeliest(length - 1);
    engine.see_logits([&](const Tensor& logits, const Tokens& tokens, Index first_column) {
      likeliest.see(logits, tokens, first_column);
    });
    engine.forward(part_of(engine, input_of(prompt)));
    generated.push_back(likeliest.of_all(engine));
    prompt.tokens = {generated.back()};
    if (prompt.source) prompt.source->clear();  // the engine has read it
  }
  return generated;
}

void LanguageModel::note_choice(Index block, const ExpertChoice& choice, const Tokens& tokens) {
  if (choice.num_experts == 0 || !tensors_have_elements()) return;
  for (Index row = 0; row < tokens.rows(); ++row) {
    const auto first = choice.experts().begin() + row * choice.top_k();
    chosen_.push_back({block,
                       tokens.first_sequence + row / tokens.length,
                       tokens.positions[static_cast<std::size_t>(row % tokens.length)],
                       {first, first + choice.top_k()}});
  }
}

}  // namespace shard
