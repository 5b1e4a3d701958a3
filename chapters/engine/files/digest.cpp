#include "engine/files/digest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/basics/pieces.hpp"
#include "engine/files/regular_file.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace shard {

struct Digest::State {
  XXH3_state_t hash;
};

Digest::Digest() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->hash);
}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::add(const void* data, std::size_t bytes) {
  XXH3_128bits_update(&state_->hash, data, bytes);
}

std::string Digest::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->hash);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string digest_of_file(const std::string& path) {
  std::uint64_t size = 0;
  const FileDescriptor file = open_regular(path, size);
  std::vector<std::byte> piece(std::min<std::uint64_t>(size, piece_bytes));
  Digest digest;
  for (std::uint64_t done = 0; done < size; done += piece.size()) {
    const std::uint64_t now = std::min<std::uint64_t>(piece.size(), size - done);
    read_exactly(file, path, done, now, piece.data());
    digest.add(piece.data(), now);
  }
  return digest.text();
}

}  // namespace shard
