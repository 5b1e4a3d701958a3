#pragma once

/// Functions of float32 for loops that the compiler turns into vector instructions. Each processor computes the
/// same bits: a sum has a fixed order, and a product is not fused with a sum (-ffp-contract=off).

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "engine/device/device.hpp"

/// A kernel compiled for three sizes of vectors, with all that it calls. A program takes the largest that its
/// processor has. (A clone of clang's is not found by other files.)
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SHARDBOOK_VECTORS __attribute__((flatten, target_clones("avx512f", "avx2", "default")))
#else
#define SHARDBOOK_VECTORS
#endif

namespace shard::emu {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// The power base^x, off by at most one ulp: 2^n e^r, where n is the integer nearest to the binary exponent, and
/// e^r = 1 + r + r² p(r) by Cephes' polynomial p. Powers of two are exact for integers.
struct Power {
  float doublings;    ///< log2 of the base
  float high, low;    ///< 1 / doublings, in two parts: the first has few bits, so n high is exact
  float log;          ///< the natural logarithm of a unit of what remains of x
  float least, most;  ///< exponents beyond these have the powers 0 and infinity

  float operator()(float exponent) const {
    float x = exponent < least ? least : exponent;  // NaN stays NaN
    x = x > most ? most : x;
    constexpr float to_integer = 0x1.8p23F;  // float32 from here on are integers, with n in the lowest bits
    const float shifted = x * doublings + to_integer, n = shifted - to_integer;
    const float r = ((x - n * high) - n * low) * log;
    float p = 1.9875691500e-4F;
    for (float c : {1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F})
      p = p * r + c;
    p = p * (r * r) + r + 1;
    const std::int32_t k = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(to_integer);
    p = p * power_of_two(k >> 1) * power_of_two(k - (k >> 1));  // in halves: 2^n may be no float32
    return exponent < least ? 0 : p;
  }

 private:
  static float power_of_two(std::int32_t k) { return std::bit_cast<float>((k + 127) << 23); }
};
/// Powers of e below 2^-126 are 0: processors are many times slower with numbers so small.
constexpr Power power_of_e{1.44269504F, 0.693359375F, -2.12194440e-4F, 1, -87.3365F, 89};
constexpr Power power_of_two{1, 1, 0, 0.693147181F, -150, 128};

/// Folds f(0) to f(n − 1) by `combine`: 16 folds of every 16th number from `initial` on, then their halves.
template <class F, class Combine>
float fold(Index n, float initial, const F& f, const Combine& combine) {
  constexpr Index lanes = 16;
  std::array<float, lanes> folds;
  folds.fill(initial);
  auto lane = [&](Index l) -> float& { return folds[static_cast<std::size_t>(l)]; };
  const Index whole = n / lanes * lanes;
  for (Index i = 0; i < whole; i += lanes)
    for (Index l = 0; l < lanes; ++l) lane(l) = combine(lane(l), f(i + l));
  for (Index i = whole; i < n; ++i) lane(i - whole) = combine(lane(i - whole), f(i));
  for (Index half = lanes / 2; half > 0; half /= 2)
    for (Index l = 0; l < half; ++l) lane(l) = combine(lane(l), lane(l + half));
  return folds[0];
}
template <class F>
float sum_of(Index n, const F& f) {
  return fold(n, 0, f, [](float sum, float x) { return sum + x; });
}
/// The largest, not NaN; -infinity where there is none.
template <class F>
float largest_of(Index n, const F& f) {
  return fold(n, -infinity, f, [](float most, float x) { return x > most ? x : most; });
}

}  // namespace shard::emu
