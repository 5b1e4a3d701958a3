// The tokens of prompts and lines that a user gives.

#include "engine/workloads/t5/t5.hpp"

namespace shard {

std::string T5::why_no_sequence(const std::vector<Index>& tokens, Index) const {
  return why_no_tokens(tokens, model_.vocabulary);
}

Prompt T5::prompt_of(const std::vector<Index>& tokens) const {
  return {{model_.start_token.value_or(tokens.back())}, tokens};
}

std::vector<Index> T5::tokens_of(const std::string& text) const {
  return Characters(data_, model_.vocabulary).tokens_of(text);
}

std::string T5::text_of(const std::vector<Index>& tokens) const {
  return Characters(data_, model_.vocabulary).text_of(tokens);
}

}  // namespace shard
