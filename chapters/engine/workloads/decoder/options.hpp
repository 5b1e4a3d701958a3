#pragma once

/// Options of language models.

#include "engine/basics/options.hpp"
#include "engine/workloads/data/characters.hpp"

namespace shard {

/// An option whose value 0 means none.
inline Option<Index> option_or_none(const std::string& name, const std::string& help, Index initial = 0) {
  Option<Index> option(name, initial, help);
  option.expected = "a whole number from 0 to 2^30";
  option.accepts = [](const std::string& text) {
    return is_number(text, [](Index n) { return n >= 0 && n <= Index{1} << 30; });
  };
  return option;
}
/// An option whose value is one of two words; by default, the first.
inline Option<std::string> option_of(const std::string& name, const std::string& first,
                                     const std::string& second, const std::string& help) {
  Option<std::string> option(name, first, help, "HOW");
  option.expected = first + " or " + second;
  option.accepts = [=](const std::string& text) { return text == first || text == second; };
  return option;
}
/// --micro-batches. A schedule is a list of all of them, so there are few.
inline Option<Index> micro_batches_option(const std::string& help) {
  Option<Index> option("--micro-batches", 4, help);
  option.expected = "a whole number from 1 to 4096";
  option.accepts = [](const std::string& text) {
    return is_number(text, [](Index n) { return n >= 1 && n <= 4096; });
  };
  return option;
}

/// A function makes the options at its first call, since kinds are made before other files' globals.
struct DecoderOptions {
  Option<Index> blocks{"--blocks", 4, "Blocks of attention and a feed-forward"};
  Option<Index> model_dim{"--model-dim", 48, "Width of the residual stream"};
  Option<Index> heads{"--heads", 6, "Query heads"};
  Option<Index> key_heads{"--key-heads", 3, "Key-value heads; query heads share them evenly"};
  Option<Index> head_dim{"--head-dim", 8, "Width of a head; an even number"};
  Option<Index> hidden_dim{"--hidden-dim", 96, "Width of the feed-forward, or of each expert"};
  Option<Index> top_k{"--top-k", 2, "Experts of each token"};
  Option<Index> window = option_or_none("--window", "Tokens that a token sees, itself included; 0 for all");
  Option<double> rope_base{"--rope-base", 10000, "Base of the rotary angles"};
  Option<double> epsilon{"--epsilon", 1e-5, "What norms add to the mean square"};
  Option<Index> length = of_data(Option<Index>("--length", 16, "Tokens of each sequence"));
  Option<std::string> pieces = of_data(option_of(
      "--pieces", "whole", "sentences",
      "Pieces of the text: whole, or each up to its first full stop (sentences); the rest is padding"));
  Option<std::string> data{"--data", Characters::default_path(),
                           "The text to learn; its characters are the tokens", "FILE"};
};
inline const DecoderOptions& decoder_option() {
  static const DecoderOptions options;
  return options;
}

}  // namespace shard
