#pragma once

#include <string>
#include <vector>

#include "engine/device/device.hpp"
#include "engine/host_tensor.hpp"

namespace shard {

/// A text as tokens: its different characters, in ascending order of their codes, are the vocabulary.
class Characters {
 public:
  /// \throws Error file for a text that cannot be read, or of fewer than two characters
  explicit Characters(const std::string& path);
  /// For a network of so many tokens. \throws Error usage if the text has more or fewer, too
  Characters(const std::string& path, Index vocabulary);
  /// Where the text lies in this source tree (chapters/data/README.md).
  static std::string default_path();

  Index vocabulary() const { return static_cast<Index>(letters_.size()); }
  Index size() const { return static_cast<Index>(tokens_.size()); }
  Index token(Index at) const { return tokens_[static_cast<std::size_t>(at)]; }
  /// \throws Error argument for a token outside the vocabulary
  char letter(Index token) const;
  /// The token of a character; no_slot where the text has none such.
  Index token_of(char letter) const;
  /// Another text as tokens, and tokens as a text. \throws Error usage for a character that this one has not
  std::vector<Index> tokens_of(const std::string& text) const;
  std::string text_of(const std::vector<Index>& tokens) const;

 private:
  std::string path_;
  std::string letters_;        // ascending
  std::vector<Index> tokens_;  // of the text
};

/// The sequences of one step: pieces of the text, each with the characters that follow. Which ones depends on
/// seed, step and row alone. (rows, 2 length): ids and labels.
HostTensor pieces_of_text(const Characters& text, Range rows, Index length, std::uint64_t seed, Index step);
/// Ends each of these pieces with its first sentence. What follows a full stop is padding, and has no label.
void end_with_sentence(const Characters& text, HostTensor& pieces);

}  // namespace shard
