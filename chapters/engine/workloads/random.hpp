#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace shard {

/// A counter-based generator: the value at an index depends on key and index alone, so each device makes only
/// the elements that it holds. Philox4x32-10 (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2,
/// 3").
class CounterRandom {
 public:
  /// Streams with different names, or seeds, are independent.
  CounterRandom(std::uint64_t seed, std::string_view name);

  /// 32 random bits.
  std::uint32_t bits(std::uint64_t index) const;
  /// Uniform in [0, 1).
  float uniform(std::uint64_t index) const;
  /// Normal with mean 0 and variance 1 (Box and Muller 1958).
  float normal(std::uint64_t index) const;
  /// Uniform integer in [low, high].
  int integer(std::uint64_t index, int low, int high) const;

  /// One block of the generator, for its published test vectors.
  static std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                             std::array<std::uint32_t, 2> key);

 private:
  std::array<std::uint32_t, 2> key_;
};

}  // namespace shard
