#pragma once

/// An independent float64 reference of the network that carries a bound on what float32 may make of it.
///
/// Running error analysis (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., section 3.1 and
/// 3.5): a sum of k products computed in float32, in any order and with or without fused multiply-add,
/// differs from the exact one by at most γ_k Σ |a||b|, γ_k = k u / (1 − k u), u = 2⁻²⁴. An error e_a of an
/// operand adds e_a |b|. A ReLU passes errors on; where a bound reaches the kink, its derivative may be 0 or
/// 1.

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/host_tensor.hpp"
#include "engine/workloads/mlp_model.hpp"

namespace shard::testing {

/// A matrix in float64, and how far a float32 computation may be from it, elementwise.
struct Bounded {
  Index rows = 0;
  Index columns = 0;
  std::vector<double> value;
  std::vector<double> error;

  Bounded(Index r, Index c)
      : rows(r), columns(c), value(static_cast<std::size_t>(r * c)), error(static_cast<std::size_t>(r * c)) {}
  explicit Bounded(const HostTensor& t) : Bounded(t.shape.at(0), t.shape.at(1)) {
    value.assign(t.values.begin(), t.values.end());
  }
  std::size_t at(Index r, Index c) const { return static_cast<std::size_t>(r * columns + c); }
};

inline Bounded transposed(const Bounded& a) {
  Bounded t(a.columns, a.rows);
  for (Index r = 0; r < a.rows; ++r)
    for (Index c = 0; c < a.columns; ++c) {
      t.value[t.at(c, r)] = a.value[a.at(r, c)];
      t.error[t.at(c, r)] = a.error[a.at(r, c)];
    }
  return t;
}

inline Bounded product(const Bounded& a, const Bounded& b) {
  constexpr double u = 0x1p-24;
  const auto k = static_cast<double>(a.columns);
  const double gamma = k * u / (1 - k * u);
  Bounded c(a.rows, b.columns);
  for (Index i = 0; i < a.rows; ++i)
    for (Index j = 0; j < b.columns; ++j)
      for (Index l = 0; l < a.columns; ++l) {
        double x = a.value[a.at(i, l)], ex = a.error[a.at(i, l)];
        double y = b.value[b.at(l, j)], ey = b.error[b.at(l, j)];
        c.value[c.at(i, j)] += x * y;
        c.error[c.at(i, j)] +=
            ex * std::abs(y) + std::abs(x) * ey + ex * ey + gamma * (std::abs(x) + ex) * (std::abs(y) + ey);
      }
  return c;
}

/// What is negative beyond doubt becomes 0 beyond doubt.
inline void apply_relu(Bounded& z) {
  for (std::size_t i = 0; i < z.value.size(); ++i) {
    if (z.value[i] <= -z.error[i]) z.error[i] = 0;
    z.value[i] = std::max(z.value[i], 0.0);
  }
}

/// d where h > 0. Where |h| is within its bound the other branch is possible too.
inline void apply_relu_backward(Bounded& d, const Bounded& h) {
  for (std::size_t i = 0; i < d.value.size(); ++i) {
    const bool is_zero = h.value[i] <= 0;
    if (is_zero && h.error[i] == 0)
      d.error[i] = 0;
    else if (h.value[i] <= h.error[i])
      d.error[i] += std::abs(d.value[i]);
    if (is_zero) d.value[i] = 0;
  }
}

/// Forward and backward: "output", "input_grad" and each parameter's gradient.
inline std::map<std::string, Bounded> solve_bounded(const Model& model,
                                                    const std::map<std::string, Bounded>& weights,
                                                    const Bounded& input, const Bounded& output_grad) {
  std::map<std::string, Bounded> results;
  std::vector<Bounded> inputs;
  Bounded a = input;
  for (Index l = 0; l < model.num_layers; ++l) {
    if (l % 2 == 1) apply_relu(a);
    inputs.push_back(a);
    a = product(a, weights.at(layer_name(l)));
  }
  results.emplace("output", a);
  Bounded d = output_grad;
  for (Index l = model.num_layers - 1; l >= 0; --l) {
    const Bounded& in = inputs[static_cast<std::size_t>(l)];
    results.emplace(layer_name(l), product(transposed(in), d));
    d = product(d, transposed(weights.at(layer_name(l))));
    if (l % 2 == 1) apply_relu_backward(d, in);
  }
  results.emplace("input_grad", d);
  return results;
}

/// w - rate g, with the two roundings of float32.
inline void sgd_step(Bounded& w, const Bounded& g, double rate) {
  constexpr double u = 0x1p-24;
  for (std::size_t i = 0; i < w.value.size(); ++i) {
    double step = rate * g.value[i];
    double step_error =
        rate * g.error[i] + 2 * u * (std::abs(step) + rate * g.error[i]);  // rate itself is rounded
    w.value[i] -= step;
    w.error[i] += step_error;
    w.error[i] += u * (std::abs(w.value[i]) + w.error[i]);
  }
}

}  // namespace shard::testing
