#pragma once

#include <string>
#include <vector>

#include "engine/basics/ranges.hpp"
#include "engine/device/device.hpp"

namespace shard {

/// The path of a file of chapters/data/. The environment's SHARDBOOK_DATA names another folder: that of a copy of
/// the programs on a machine without the project.
std::string data_path(const std::string& file);

/// A text as tokens. The vocabulary is its different characters, in ascending order of their codes.
class Characters {
 public:
  /// \throws Error file for a text that cannot be read, or of fewer than two characters
  explicit Characters(const std::string& path);
  /// For a network with this vocabulary. \throws Error usage if the text has more or fewer characters, too
  Characters(const std::string& path, Index vocabulary);
  /// The path of the text in this source tree (chapters/data/README.md).
  static std::string default_path();

  Index vocabulary() const { return static_cast<Index>(letters_.size()); }
  Index size() const { return static_cast<Index>(tokens_.size()); }
  /// Of the characters' shares of the text, in nats: the mean loss of who knows no more than these.
  double entropy() const;
  Index token(Index at) const { return tokens_[static_cast<std::size_t>(at)]; }
  /// \throws Error argument for a token outside the vocabulary
  char letter(Index token) const;
  /// The token of a character; no_slot if the text does not have it.
  Index token_of(char letter) const;
  /// Converts another text to tokens, and tokens to a text. \throws Error usage for an unknown character
  std::vector<Index> tokens_of(const std::string& text) const;
  std::string text_of(const std::vector<Index>& tokens) const;

 private:
  std::string path_;
  std::string letters_;        // the vocabulary
  std::vector<Index> tokens_;  // of the text
};

/// The sequences of one step, (rows, 2 length): ids and labels. Each is a piece of the text, with the next
/// character of each as its label. Which piece depends on seed, step and row alone.
HostTensor pieces_of_text(const Characters& text, Range rows, Index length, std::uint64_t seed, Index step);
/// Ends each piece with its first sentence. Behind a full stop, there is padding without labels.
void end_with_sentence(const Characters& text, HostTensor& pieces);

}  // namespace shard
