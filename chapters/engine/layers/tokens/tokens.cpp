#include "engine/layers/tokens/tokens.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

namespace shard {

namespace {

Index as_token(float number, Index vocabulary, const char* what, bool may_be_none) {
  const auto token = static_cast<Index>(number);
  const bool is_good = static_cast<float>(token) == number &&
                       ((token >= 0 && token < vocabulary) || (may_be_none && token == Tokens::no_label));
  if (!is_good)
    refuse(Code::argument, what,
           fmt::format("tokens from 0 to {}{}", vocabulary - 1, may_be_none ? ", or -100 for none" : ""),
           fmt::format("{}", number));
  return token;
}

Tokens with_positions(Index sequences, Index length, Index first = 0) {
  return {.sequences = sequences, .length = length, .positions = positions_from(first, length)};
}

}  // namespace

std::vector<Index> positions_from(Index first, Index count) {
  std::vector<Index> positions(static_cast<std::size_t>(count));
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

Tokens Tokens::read(const Tensor& input, Index vocabulary, Index first_position, SourceLine where) {
  const CallSite call(where);
  if (input.rank() != 2 || input.extent(1) % 2 != 0)
    refuse(Code::argument, "tokens", "ids and labels of sequences, (B, 2 S)", to_string(input.shape()));
  Tokens tokens = with_positions(input.extent(0), input.extent(1) / 2, first_position);
  const std::vector<float> numbers = input.to_host();
  tokens.ids.reserve(numbers.size() / 2), tokens.labels.reserve(numbers.size() / 2);
  auto number = numbers.begin();
  for (Index b = 0; b < tokens.sequences; ++b) {
    for (Index i = 0; i < tokens.length; ++i)
      tokens.ids.push_back(as_token(*number++, vocabulary, "input_ids", false));
    for (Index i = 0; i < tokens.length; ++i)
      tokens.labels.push_back(as_token(*number++, vocabulary, "labels", true));
  }
  return tokens;
}

Tokens Tokens::at(const std::vector<Index>& places) const {
  Tokens some{.sequences = sequences, .length = static_cast<Index>(places.size())};
  some.first_sequence = first_sequence;
  auto copy = [&](const std::vector<Index>& from, std::vector<Index>& to) {
    if (from.empty()) return;
    to.reserve(places.size() * static_cast<std::size_t>(sequences));
    for (Index b = 0; b < sequences; ++b)
      for (Index place : places) to.push_back(from[static_cast<std::size_t>(b * length + place)]);
  };
  copy(ids, some.ids);
  copy(labels, some.labels);
  for (Index place : places) some.positions.push_back(positions[static_cast<std::size_t>(place)]);
  return some;
}

Tokens Tokens::piece(Index m, Index pieces) const {
  const Range mine = part(sequences, static_cast<int>(pieces), static_cast<int>(m));
  Tokens some{.sequences = mine.size(), .length = length, .positions = positions};
  some.first_sequence = first_sequence + mine.begin;
  auto copy = [&](const std::vector<Index>& from, std::vector<Index>& to) {
    if (!from.empty()) to.assign(from.begin() + mine.begin * length, from.begin() + mine.end * length);
  };
  copy(ids, some.ids);
  copy(labels, some.labels);
  return some;
}

SourceAndTarget SourceAndTarget::read(const Tensor& input, Index vocabulary, SourceLine where) {
  const CallSite call(where);
  const char* expected = "the length of sources, their ids, and ids and labels of targets, (B, 1 + n + 2 S)";
  if (input.rank() != 2 || input.extent(1) < 1)
    refuse(Code::argument, "tokens", expected, to_string(input.shape()));
  const Index sequences = input.extent(0), width = input.extent(1);
  const std::vector<float> numbers = input.to_host();
  const auto n = sequences == 0 ? 0 : static_cast<Index>(numbers[0]);
  if (n < 0 || n >= width || (width - 1 - n) % 2 != 0)
    refuse(Code::argument, "tokens", expected,
           fmt::format("{} with a length of {}", to_string(input.shape()), n));
  SourceAndTarget batch{with_positions(sequences, n), with_positions(sequences, (width - 1 - n) / 2)};
  auto number = numbers.begin();
  for (Index b = 0; b < sequences; ++b) {
    if (*number++ != static_cast<float>(n))
      refuse(Code::argument, "tokens", "sources of one length", "several");
    for (Index i = 0; i < n; ++i)
      batch.source.ids.push_back(as_token(*number++, vocabulary, "input_ids", false));
    for (Index i = 0; i < batch.target.length; ++i)
      batch.target.ids.push_back(as_token(*number++, vocabulary, "decoder_input_ids", false));
    for (Index i = 0; i < batch.target.length; ++i)
      batch.target.labels.push_back(as_token(*number++, vocabulary, "labels", true));
  }
  return batch;
}

std::string why_no_tokens(const std::vector<Index>& tokens, Index vocabulary) {
  for (Index token : tokens)
    if (token < 0 || token >= vocabulary)
      return fmt::format("expected tokens from 0 to {}, given {}", vocabulary - 1, token);
  return "";
}

std::vector<Index> in_slice(const std::vector<Index>& tokens, Range slice) {
  std::vector<Index> rows;
  rows.reserve(tokens.size());
  for (Index token : tokens)
    rows.push_back(token >= slice.begin && token < slice.end ? token - slice.begin : no_slot);
  return rows;
}

}  // namespace shard
