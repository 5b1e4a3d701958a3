#include "engine/workloads/random.hpp"

#include <cmath>
#include <numbers>

namespace shard {

namespace {

/// FNV-1a: 64 bits of a name.
std::uint64_t hash(std::string_view text, std::uint64_t seed) {
  std::uint64_t h = 14695981039346656037ULL ^ (seed * 0x9E3779B97F4A7C15ULL);
  for (unsigned char c : text) h = (h ^ c) * 1099511628211ULL;
  return h;
}

/// The 24 upper bits as a fraction: every value is exact in float32.
float fraction(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24F;
}

}  // namespace

CounterRandom::CounterRandom(std::uint64_t seed, std::string_view name) {
  std::uint64_t key = hash(name, seed);
  key_ = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

std::array<std::uint32_t, 4> CounterRandom::philox(std::array<std::uint32_t, 4> c,
                                                   std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t p0 = 0xD2511F53ULL * c[0];
    std::uint64_t p1 = 0xCD9E8D57ULL * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return c;
}

std::uint32_t CounterRandom::bits(std::uint64_t index) const {
  std::uint64_t block = index / 4;
  return philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0},
                key_)[index % 4];
}

float CounterRandom::uniform(std::uint64_t index) const {
  return fraction(bits(index));
}

float CounterRandom::normal(std::uint64_t index) const {
  auto pair =
      philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 1, 0}, key_);
  double u = (static_cast<double>(pair[0]) + 0.5) * 0x1p-32;  // never 0
  double angle = 2 * std::numbers::pi * fraction(pair[1]);
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(angle));
}

int CounterRandom::integer(std::uint64_t index, int low, int high) const {
  return low +
         static_cast<int>(
             (static_cast<std::uint64_t>(bits(index)) * static_cast<std::uint64_t>(high - low + 1)) >> 32);
}

}  // namespace shard
