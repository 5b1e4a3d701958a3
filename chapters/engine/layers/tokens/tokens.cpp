#include "engine/layers/tokens/tokens.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "engine/device/books/memory.hpp"

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
  return token == Tokens::no_label ? no_slot : token;
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

void Tokens::set(std::vector<Index> new_ids, const std::vector<Index>& new_labels) {
  const Index count = std::ssize(new_ids);
  new_ids.insert(new_ids.end(), new_labels.begin(), new_labels.end());
  const Indices both(one_of_equal(std::move(new_ids)));
  ids = both.range(0, count);
  labels = both.range(count, both.size() - count);
}

Tokens Tokens::read(const Tensor& input, Index vocabulary, Index first_position, SourceLine where) {
  const CallSite call(where);
  if (input.rank() != 2 || input.extent(1) % 2 != 0)
    refuse(Code::argument, "tokens", "ids and labels of sequences, (B, 2 S)", to_string(input.shape()));
  Tokens tokens = with_positions(input.extent(0), input.extent(1) / 2, first_position);
  const std::vector<float> numbers = input.to_host();
  std::vector<Index> ids, labels;
  ids.reserve(numbers.size()), labels.reserve(numbers.size() / 2);
  auto number = numbers.begin();
  for (Index b = 0; b < tokens.sequences; ++b) {
    for (Index i = 0; i < tokens.length; ++i)
      ids.push_back(as_token(*number++, vocabulary, "input_ids", false));
    for (Index i = 0; i < tokens.length; ++i)
      labels.push_back(as_token(*number++, vocabulary, "labels", true));
  }
  tokens.set(std::move(ids), labels);
  return tokens;
}

Tokens Tokens::at(const std::vector<Index>& places) const {
  Tokens some{.sequences = sequences, .length = static_cast<Index>(places.size())};
  some.first_sequence = first_sequence;
  auto at_places = [&](const Indices& from) {
    std::vector<Index> to;
    for (Index b = 0; b < sequences && from.size() > 0; ++b)
      for (Index place : places) to.push_back(from[b * length + place]);
    return to;
  };
  some.set(at_places(ids), at_places(labels));
  for (Index place : places) some.positions.push_back(positions[static_cast<std::size_t>(place)]);
  return some;
}

Tokens Tokens::piece(Index m, Index pieces) const {
  const Range mine = part(sequences, static_cast<int>(pieces), static_cast<int>(m));
  Tokens some{.sequences = mine.size(), .length = length, .positions = positions};
  some.first_sequence = first_sequence + mine.begin;
  auto of_mine = [&](const Indices& from) {
    const Indices to = from.size() == 0 ? from : from.range(mine.begin * length, mine.size() * length);
    return std::vector<Index>(to.begin(), to.end());
  };
  some.set(of_mine(ids), of_mine(labels));
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
  std::vector<Index> source_ids, ids, labels;
  auto number = numbers.begin();
  for (Index b = 0; b < sequences; ++b) {
    if (*number++ != static_cast<float>(n))
      refuse(Code::argument, "tokens", "sources of one length", "several");
    for (Index i = 0; i < n; ++i) source_ids.push_back(as_token(*number++, vocabulary, "input_ids", false));
    for (Index i = 0; i < batch.target.length; ++i)
      ids.push_back(as_token(*number++, vocabulary, "decoder_input_ids", false));
    for (Index i = 0; i < batch.target.length; ++i)
      labels.push_back(as_token(*number++, vocabulary, "labels", true));
  }
  batch.source.set(std::move(source_ids), {});
  batch.target.set(std::move(ids), labels);
  return batch;
}

std::string why_no_tokens(const std::vector<Index>& tokens, Index vocabulary) {
  for (Index token : tokens)
    if (token < 0 || token >= vocabulary)
      return fmt::format("expected tokens from 0 to {}, given {}", vocabulary - 1, token);
  return "";
}

Indices in_slice(const Indices& tokens, Range slice) {
  if (!tensors_have_elements()) return tokens;  // nobody reads them
  std::vector<Index> rows;
  rows.reserve(tokens.whole().size());
  for (Index token : tokens.whole())
    rows.push_back(token >= slice.begin && token < slice.end ? token - slice.begin : no_slot);
  return tokens.same_part_of(std::move(rows));
}

}  // namespace shard
