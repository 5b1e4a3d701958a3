#pragma once

/// Bounds of the rounding errors of results in real numbers, estimated with the unsharded network.
///
/// A float32 sum of k products, in any order, is the exact sum of products whose factors are changed by relative
/// errors of at most γ_k = k u / (1 − k u), u = 2⁻²⁴ (Higham, "Accuracy and Stability of Numerical Algorithms",
/// 2nd ed., section 3.1). So we repeat the computation several times, each time with every given number changed,
/// up or down, by γ of the longest sum. We assume that rounding errors are independent and have mean 0 (Higham and
/// Mary 2019, "A new approach to probabilistic rounding error analysis"). Then the root mean square of the changes
/// of a result estimates the standard deviation of its error, and error / estimate has at most Student's
/// distribution. Two computations differ by two errors.

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "engine/basics/larger.hpp"
#include "engine/basics/ranges.hpp"
#include "engine/workloads/random.hpp"
#include "engine/workloads/workload.hpp"

namespace shard::testing {

using Tensors = std::map<std::string, HostTensor>;

/// Results, and bounds: another float32 computation differs by more in one element of 10⁹.
struct Bounded {
  Tensors values, bounds;

  /// The widest bound, in units of the largest element of its tensor.
  double widest() const {
    double worst = 0;
    for (const auto& [name, bound] : bounds) {
      double largest = 0, most = 0;
      for (float x : values.at(name).values) largest = larger(largest, std::abs(x));
      for (float x : bound.values) most = larger(most, std::abs(x));
      if (most != 0) worst = larger(worst, most / largest);
    }
    return worst;
  }
};

/// The largest number of products in a sum of the network, for an output of `rows` rows.
inline Index longest_sum(const Workload& network, Index rows) {
  Index longest = rows;
  for (const Parameter& p : network.parameters()) longest = std::max(longest, std::ranges::max(p.shape));
  return longest;
}

/// The results of compute(given), with bounds from repetitions with changed numbers.
template <class Compute>
Bounded with_bounds(const Tensors& given, Index longest_sum, const Compute& compute) {
  constexpr int samples = 16;
  constexpr double quantile = 12.61;  // of Student's distribution of 16 degrees of freedom, on both sides
  const double k_u = static_cast<double>(longest_sum) * 0x1p-24;
  const auto gamma = static_cast<float>(k_u / (1 - k_u));
  Bounded all{compute(given), {}};
  std::map<std::string, std::vector<double>> squares;
  for (std::uint64_t sample = 0; sample < samples; ++sample) {
    Tensors moved = given;
    for (auto& [name, t] : moved) {
      const CounterRandom random(sample, "moved " + name);
      for (std::size_t i = 0; i < t.values.size(); ++i)
        t.values[i] *= random.uniform(i) < 0.5F ? 1 + gamma : 1 - gamma;
    }
    for (const auto& [name, t] : compute(moved)) {
      squares[name].resize(t.values.size());
      for (std::size_t i = 0; i < t.values.size(); ++i) {
        const double by = double{t.values[i]} - all.values.at(name).values[i];
        squares[name][i] += by * by;
      }
    }
  }
  for (const auto& [name, sums] : squares) {
    HostTensor& bound = all.bounds[name] = {all.values.at(name).shape, {}};
    for (double sum : sums)
      bound.values.push_back(static_cast<float>(quantile * std::sqrt(2 * sum / samples)));
  }
  return all;
}

/// The largest difference in units of its bound; more than 1 is an error, and so is NaN.
inline double worst_in_bounds(const HostTensor& given, const HostTensor& expected, const HostTensor& bound) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double difference = std::abs(double{given.values.at(i)} - expected.values[i]);
    if (difference != 0) worst = larger(worst, difference / bound.values[i]);
  }
  return worst;
}

}  // namespace shard::testing
