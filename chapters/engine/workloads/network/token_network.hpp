#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/layers/tokens/tokens.hpp"

namespace shard {

/// What a language model says of its tokens.
class TokenNetwork {
 public:
  virtual ~TokenNetwork() = default;

  /// Why these tokens, followed by `more` others, are no sequence of the network: "expected tokens from 0 to
  /// 9, given 12". Empty if they are one.
  virtual std::string why_no_sequence(const std::vector<Index>& tokens, Index more) const = 0;
  /// The prompt that the tokens of a user make.
  virtual Prompt prompt_of(const std::vector<Index>& tokens) const { return {tokens, std::nullopt}; }
  /// Converts a text to tokens, and tokens to a text. \throws Error usage when the network has no such text
  virtual std::vector<Index> tokens_of(const std::string& text) const = 0;
  virtual std::string text_of(const std::vector<Index>& tokens) const = 0;
};

}  // namespace shard
