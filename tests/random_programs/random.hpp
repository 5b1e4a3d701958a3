#pragma once

/// Random numbers that are the same with every compiler and library: the standard fixes mt19937_64 and
/// seed_seq, but no distribution.

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "engine/device/split.hpp"

namespace shard::testing {

class Random {
 public:
  explicit Random(std::vector<std::uint64_t> seed) : engine_(seeded(seed)) {}

  /// 0 to n - 1.
  int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  bool one_in(int n) { return below(n) == 0; }
  template <class T>
  const T& pick(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(below(static_cast<int>(values.size())))];
  }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[static_cast<std::size_t>(below(static_cast<int>(i)))]);
  }

 private:
  static std::mt19937_64 seeded(const std::vector<std::uint64_t>& seed) {
    std::vector<std::uint32_t> words;
    for (std::uint64_t number : seed)
      words.insert(words.end(),
                   {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32)});
    std::seed_seq sequence(words.begin(), words.end());
    return std::mt19937_64(sequence);
  }

  std::mt19937_64 engine_;
};

}  // namespace shard::testing
