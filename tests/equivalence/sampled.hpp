#pragma once

/// Numbers that carry samples of what rounding may make of them, and the bound that follows.
///
/// The bounds of reference.hpp add up absolute values, operation by operation. Through attention and norms
/// they grow without need: in a decoder of one block to 80 % of the largest gradient, and in one of two to no
/// bound at all. So here the errors themselves go through the network. Beside its exact value each number has
/// samples with random roundings. Every operation moves each sample, up or down, by the most that float32
/// could: a sum of k products in any order by γ_k Σ |a||b|, γ_k = k u / (1 − k u), u = 2⁻²⁴ (Higham,
/// "Accuracy and Stability of Numerical Algorithms", 2nd ed., section 3.1), and a function by the units that
/// stand below.
///
/// The bound takes roundings to be independent, and none to prefer a side (Higham and Mary 2019, "A new
/// approach to probabilistic rounding error analysis"). Then the error of a result is a sum of many independent
/// numbers, none larger than what moves a sample. So its deviation is at most that of the samples, of which
/// their root mean square is an estimate: error / estimate has at most Student's distribution.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "engine/host_tensor.hpp"

namespace shard::testing {

/// A number, and `Samples` more that random roundings make of it.
template <int Samples>
struct Sampled {
  std::array<double, Samples + 1> of{};  // the first is exact

  Sampled() = default;
  Sampled(double value) { of.fill(value); }  // NOLINT: a number
  double value() const { return of[0]; }
  /// How far a float32 computation may be: in one of 10⁹ results it is farther.
  double bound() const {
    static_assert(Samples == 16);
    constexpr double quantile = 12.61;  // of Student's distribution of 16 degrees of freedom, on both sides
    double squares = 0;
    for (double sample : of) squares += (sample - of[0]) * (sample - of[0]);
    return quantile * std::sqrt(squares / Samples);
  }

  friend Sampled operator+(Sampled a, const Sampled& b) {
    for (std::size_t i = 0; i < a.of.size(); ++i) a.of[i] += b.of[i];
    return a;
  }
  friend Sampled operator-(Sampled a, const Sampled& b) {
    for (std::size_t i = 0; i < a.of.size(); ++i) a.of[i] -= b.of[i];
    return a;
  }
  friend Sampled operator*(Sampled a, const Sampled& b) {
    for (std::size_t i = 0; i < a.of.size(); ++i) a.of[i] *= b.of[i];
    return a;
  }
  friend Sampled operator/(Sampled a, const Sampled& b) {
    for (std::size_t i = 0; i < a.of.size(); ++i) a.of[i] /= b.of[i];
    return a;
  }
  /// f of the value and of each sample.
  template <class F>
  Sampled mapped(const F& f) const {
    Sampled result;
    for (std::size_t i = 0; i < of.size(); ++i) result.of[i] = f(of[i]);
    return result;
  }
};

/// A matrix of them.
template <class Number>
struct Numbers {
  Index rows = 0, columns = 0;
  std::vector<Number> all{};

  Numbers() = default;
  Numbers(Index r, Index c) : rows(r), columns(c), all(static_cast<std::size_t>(r * c)) {}
  explicit Numbers(const HostTensor& t)
      : rows(t.shape.size() == 1 ? 1 : t.shape[0]),
        columns(t.shape.back()),
        all(t.values.begin(), t.values.end()) {}
  Number& at(Index r, Index c) { return all[static_cast<std::size_t>(r * columns + c)]; }
  const Number& at(Index r, Index c) const { return all[static_cast<std::size_t>(r * columns + c)]; }
  Numbers transposed() const {
    Numbers t(columns, rows);
    for (Index r = 0; r < rows; ++r)
      for (Index c = 0; c < columns; ++c) t.at(c, r) = at(r, c);
    return t;
  }
  Numbers some_rows(const std::vector<Index>& which) const {
    Numbers some(static_cast<Index>(which.size()), columns);
    for (Index r = 0; r < some.rows; ++r)
      for (Index c = 0; c < columns; ++c) some.at(r, c) = at(which[static_cast<std::size_t>(r)], c);
    return some;
  }
};

/// Σ a(i) b(i), not rounded yet. Adds up the absolute values.
template <class A, class B>
auto exact_dot(Range range, const A& a, const B& b, double& magnitude) {
  std::remove_cvref_t<decltype(a(0))> sum;
  for (Index i = range.begin; i < range.end; ++i) {
    const auto &x = a(i), &y = b(i);
    for (std::size_t s = 0; s < sum.of.size(); ++s) sum.of[s] += x.of[s] * y.of[s];
    magnitude += std::abs(x.value() * y.value());
  }
  return sum;
}

/// Sums of many addends, of which nobody says in which order they are added. They are rounded when all
/// addends are there (Roundings::of).
template <class Number>
class Sums {
 public:
  Numbers<Number> sums;
  std::vector<double> magnitudes, terms;

  Sums(Index rows, Index columns)
      : sums(rows, columns), magnitudes(sums.all.size()), terms(sums.all.size()) {}

  /// An addend that is itself a sum of `terms_of`, whose absolute values add up to `magnitude`.
  void add(Index r, Index c, const Number& addend, double magnitude, double terms_of) {
    const auto i = static_cast<std::size_t>(r * sums.columns + c);
    sums.all[i] = sums.all[i] + addend;
    magnitudes[i] += magnitude;
    terms[i] += terms_of;
  }
  void add(Index r, Index c, const Number& addend) { add(r, c, addend, std::abs(addend.value()), 1); }
  void add_product(const Numbers<Number>& a, const Numbers<Number>& b) {
    for (Index i = 0; i < a.rows; ++i)
      for (Index j = 0; j < b.columns; ++j) {
        double magnitude = 0;
        const Number sum = exact_dot(
            {0, a.columns}, [&](Index k) -> auto& { return a.at(i, k); },
            [&](Index k) -> auto& { return b.at(k, j); }, magnitude);
        add(i, j, sum, magnitude, static_cast<double>(a.columns));
      }
  }
};

/// The roundings of one run.
template <class Number>
class Roundings {
 public:
  static constexpr double u = 0x1p-24;
  /// \name Units u of relative error. C libraries and GPUs promise 2 units in the last place, 4 u, or less.
  /// @{
  static constexpr double of_exp = 4, of_root = 4, of_division = 4;
  static constexpr double of_sigmoid = of_exp + 1 + of_division;  // 1 / (1 + exp(−z))
  /// @}

  /// Moves each sample by this much.
  Number moved(Number x, double by) {
    state_ += 0x9e3779b97f4a7c15U;  // SplitMix64
    std::uint64_t bits = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9U;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
    bits ^= bits >> 31;
    for (std::size_t i = 1; i < x.of.size(); ++i, bits >>= 1) x.of[i] += (bits & 1) != 0 ? by : -by;
    return x;
  }
  /// A result with a relative error of `units` units: one for an operation.
  Number operator()(const Number& x, double units = 1) { return moved(x, units * u * std::abs(x.value())); }

  /// A sum of `terms` addends whose absolute values add up to `magnitude`.
  Number of_sum(const Number& sum, double terms, double magnitude) {
    return moved(sum, terms * u / (1 - terms * u) * magnitude);
  }
  /// Σ a(i) b(i).
  template <class A, class B>
  Number dot(Range range, const A& a, const B& b) {
    double magnitude = 0;
    const Number sum = exact_dot(range, a, b, magnitude);
    return of_sum(sum, static_cast<double>(range.size()), magnitude);
  }
  /// Of row i of a with row j of b.
  Number dot_rows(const Numbers<Number>& a, Index i, const Numbers<Number>& b, Index j) {
    return dot(
        {0, a.columns}, [&](Index k) -> auto& { return a.at(i, k); },
        [&](Index k) -> auto& { return b.at(j, k); });
  }
  Numbers<Number> product(const Numbers<Number>& a, const Numbers<Number>& b) {
    Numbers<Number> c(a.rows, b.columns);
    for (Index i = 0; i < a.rows; ++i)
      for (Index j = 0; j < b.columns; ++j)
        c.at(i, j) = dot(
            {0, a.columns}, [&](Index k) -> auto& { return a.at(i, k); },
            [&](Index k) -> auto& { return b.at(k, j); });
    return c;
  }
  Numbers<Number> of(const Sums<Number>& all) {
    Numbers<Number> rounded = all.sums;
    for (std::size_t i = 0; i < rounded.all.size(); ++i)
      rounded.all[i] = of_sum(rounded.all[i], all.terms[i], all.magnitudes[i]);
    return rounded;
  }
  void add_to(Numbers<Number>& sum, const Numbers<Number>& addend) {
    for (std::size_t i = 0; i < sum.all.size(); ++i) sum.all[i] = (*this)(sum.all[i] + addend.all[i]);
  }

 private:
  std::uint64_t state_ = 1;
};

}  // namespace shard::testing
