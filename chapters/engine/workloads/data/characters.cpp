#include "engine/workloads/data/characters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>

#include "engine/basics/printable.hpp"
#include "engine/layers/tokens/tokens.hpp"
#include "engine/workloads/random.hpp"

namespace shard {

std::string data_path(const std::string& file) {
  const char* other = std::getenv("SHARDBOOK_DATA");
  return (other != nullptr ? other : SHARDBOOK_DATA) + ("/" + file);
}

Characters::Characters(const std::string& path) : path_(path) {
  std::error_code ignored;
  std::ifstream file;
  if (std::filesystem::is_regular_file(path, ignored)) file.open(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad())
    throw Error(Code::file, "{}: expected a text, given a file that cannot be read", printable(path, 200));
  std::array<Index, 256> token_of_byte{};
  auto byte = [](char letter) { return static_cast<unsigned char>(letter); };
  for (char letter : text) token_of_byte[byte(letter)] = 1;
  for (int letter = std::numeric_limits<char>::min(); letter <= std::numeric_limits<char>::max(); ++letter)
    if (Index& token = token_of_byte[byte(static_cast<char>(letter))]; token != 0) {
      token = vocabulary();
      letters_ += static_cast<char>(letter);
    }
  if (letters_.size() < 2)
    throw Error(Code::file, "{}: expected a text of two different characters or more, given {}",
                printable(path, 200), letters_.size());
  tokens_.reserve(text.size());
  for (char letter : text) tokens_.push_back(token_of_byte[byte(letter)]);
}

Characters::Characters(const std::string& path, Index vocabulary) : Characters(path) {
  if (this->vocabulary() != vocabulary)
    throw Error(Code::usage, "--text: expected a network of {} tokens, the characters of {}, given {}",
                this->vocabulary(), printable(path, 120), vocabulary);
}

std::string Characters::default_path() {
  return data_path("northanger.txt");
}

double Characters::entropy() const {
  std::vector<double> counts(letters_.size());
  for (const Index token : tokens_) ++counts[static_cast<std::size_t>(token)];
  double entropy = 0;
  const auto all = static_cast<double>(tokens_.size());
  for (const double count : counts) entropy -= count / all * std::log(count / all);
  return entropy;
}

char Characters::letter(Index token) const {
  if (token < 0 || token >= vocabulary())
    refuse(Code::argument, "token", fmt::format("0 to {}", vocabulary() - 1), fmt::format("{}", token));
  return letters_[static_cast<std::size_t>(token)];
}

Index Characters::token_of(char letter) const {
  const std::size_t at = letters_.find(letter);
  return at == letters_.npos ? no_slot : static_cast<Index>(at);
}

std::vector<Index> Characters::tokens_of(const std::string& text) const {
  std::vector<Index> tokens;
  for (char letter : text) {
    tokens.push_back(token_of(letter));
    if (tokens.back() == no_slot)
      throw Error(Code::usage, "--text: expected characters of {}, given '{}'", printable(path_, 120),
                  printable({&letter, 1}));
  }
  return tokens;
}

std::string Characters::text_of(const std::vector<Index>& tokens) const {
  std::string text;
  for (Index token : tokens) text += letter(token);
  return text;
}

HostTensor pieces_of_text(const Characters& text, Range rows, Index length, std::uint64_t seed, Index step) {
  if (text.size() <= length)
    throw Error(Code::usage, "--length: expected a length below the text's {}, given {}", text.size(),
                length);
  const CounterRandom random(seed, fmt::format("text of step {}", step));
  HostTensor pieces{{rows.size(), 2 * length}, {}};
  for (Index row = rows.begin; row < rows.end; ++row) {
    const Index first =
        random.integer(static_cast<std::uint64_t>(row), 0, static_cast<int>(text.size() - length - 1));
    for (Index shift : {0, 1})
      for (Index i = 0; i < length; ++i)
        pieces.values.push_back(static_cast<float>(text.token(first + i + shift)));
  }
  return pieces;
}

void end_with_sentence(const Characters& text, HostTensor& pieces) {
  constexpr float padding = 0;
  const auto stop = static_cast<float>(text.token_of('.'));
  const auto length = static_cast<std::size_t>(pieces.shape[1] / 2);
  for (auto ids = pieces.values.begin(); ids != pieces.values.end(); ids += 2 * static_cast<Index>(length)) {
    const std::span piece(ids, length), labels(ids + static_cast<Index>(length), length);
    const auto last = static_cast<std::size_t>(std::ranges::find(piece, stop) - piece.begin());
    for (std::size_t i = last; i < length; ++i) {
      labels[i] = Tokens::no_label;
      if (i > last) piece[i] = padding;
    }
  }
}

}  // namespace shard
