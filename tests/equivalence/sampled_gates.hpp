#pragma once

/// The gates of feed-forwards, silu and gelu, in float64 with samples of what float32 may make of them.

#include <numbers>

#include "engine/layers/feed_forward.hpp"
#include "tests/equivalence/sampled.hpp"

namespace shard::testing {

namespace gates {

using R = Roundings<Sampled<0>>;

inline double sigmoid(double z) {
  return 1 / (1 + std::exp(-z));
}
/// \name GELU in its form with tanh, which is z σ(a): a = 2 √(2/π) (z + 0.044715 z³), and its derivative
/// @{
inline double inner(double z) {
  return 2 * std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z);
}
inline double inner_slope(double z) {
  return 2 * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * z * z);
}
/// The second addend of the derivative σ(a) + z σ(a) σ(−a) a'.
inline double second(double z) {
  return z * sigmoid(inner(z)) * sigmoid(-inner(z)) * inner_slope(z);
}
/// Units of a, and of a'. The addends have one sign: two constants, four products and a sum.
inline constexpr double of_inner = 7;
/// @}

/// z σ(z).
template <class Number>
Number silu(const Number& z, Roundings<Number>& round) {
  return round(z.mapped([](double x) { return x * sigmoid(x); }), R::of_sigmoid + 1);
}
/// σ(z) (1 + z σ(−z)): the error of z σ(−z) stays as large beside the 1.
template <class Number>
Number silu_slope(const Number& z, Roundings<Number>& round) {
  const Number slope = z.mapped([](double g) { return sigmoid(g) * (1 + g * sigmoid(-g)); });
  const double g = z.value(), units = R::of_sigmoid + 1;
  return round.moved(round(slope, units + 1), R::u * units * std::abs(g) * sigmoid(g) * sigmoid(-g));
}

/// An error of a, relative to a, is multiplied by |a| σ(−a) in σ(a).
template <class Number>
Number gelu(const Number& z, Roundings<Number>& round) {
  const double a = inner(z.value());
  return round(z.mapped([](double x) { return x * sigmoid(inner(x)); }),
               R::of_sigmoid + of_inner * std::abs(a) * sigmoid(-a) + 1);
}
/// One addend may be negative: each keeps its error.
template <class Number>
Number gelu_slope(const Number& z, Roundings<Number>& round) {
  const double a = inner(z.value()), of_a = of_inner * std::abs(a);
  const double first_units = R::of_sigmoid + of_a * sigmoid(-a);
  const double second_units = 2 * R::of_sigmoid + of_a + of_inner + 3;  // σ(a), σ(−a), a', three products
  return round.moved(round(z.mapped([](double x) { return sigmoid(inner(x)) + second(x); })),
                     R::u * (first_units * sigmoid(a) + second_units * std::abs(second(z.value()))));
}

}  // namespace gates

/// What a gate makes of z, and its derivative.
/// @{
template <class Number>
Number activation(const Number& z, Gate gate, Roundings<Number>& round) {
  return gate == Gate::silu ? gates::silu(z, round) : gates::gelu(z, round);
}
template <class Number>
Number slope(const Number& z, Gate gate, Roundings<Number>& round) {
  return gate == Gate::silu ? gates::silu_slope(z, round) : gates::gelu_slope(z, round);
}
/// @}

}  // namespace shard::testing
