#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace shard {

/// A digest of bytes that are added one after the other: XXH3 of 128 bits (https://xxhash.com). It finds
/// damage. It does not protect against deliberate changes. `xxh128sum FILE` prints the same for a file.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void add(const void* data, std::size_t bytes);
  /// The digest of all bytes so far: 32 hexadecimal digits.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The digest of a whole file, which is read in pieces. \throws Error file when it cannot be read
std::string digest_of_file(const std::string& path);

}  // namespace shard
