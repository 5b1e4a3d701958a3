#pragma once

/// An independent float64 reference of a mixture of experts, with a bound on what float32 may make of it:
/// reference.hpp for what is new, the softmax, gates and choices. Choices are not continuous, so they are
/// only the same if no rounding can turn them: the reference refuses a problem in which two logits are as
/// close as that.
///
/// A rounded sum or product differs from the exact one by a factor 1 + δ, |δ| ≤ u = 2⁻²⁴. exp is taken to be
/// within 4 u relative (C libraries and GPUs promise 2 units in the last place or less).

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "engine/workloads/mixture_model.hpp"
#include "engine/workloads/routing_rule.hpp"
#include "tests/equivalence/reference.hpp"

namespace shard::testing {

/// A number, and how far a float32 computation of it may be.
struct Interval {
  double value = 0;
  double error = 0;

  double most() const { return std::abs(value) + error; }
  /// After one more rounding.
  Interval rounded() const { return {value, error + 0x1p-24 * most()}; }
};
using Intervals = std::vector<Interval>;

inline Interval operator+(Interval a, Interval b) {
  return Interval{a.value + b.value, a.error + b.error}.rounded();
}
inline Interval operator-(Interval a, Interval b) {
  return Interval{a.value - b.value, a.error + b.error}.rounded();
}
inline Interval operator*(Interval a, Interval b) {
  return Interval{a.value * b.value, a.most() * b.error + a.error * std::abs(b.value)}.rounded();
}

/// A sum of n such numbers in any order: each adds its part of the bound γ_n Σ |a||b|, as in `product`.
inline void accumulate(Interval& sum, Interval a, Interval b, double n) {
  constexpr double u = 0x1p-24;
  sum.value += a.value * b.value;
  sum.error += a.most() * b.error + a.error * std::abs(b.value) + n * u / (1 - n * u) * a.most() * b.most();
}
constexpr Interval one = {1, 0};

inline Interval get(const Bounded& m, Index r, Index c) {
  return {m.value[m.at(r, c)], m.error[m.at(r, c)]};
}
inline void set(Bounded& m, Index r, Index c, Interval v) {
  m.value[m.at(r, c)] = v.value;
  m.error[m.at(r, c)] = v.error;
}

/// exp(z) / Σ exp(z), computed after the largest was subtracted.
inline Intervals bounded_softmax(const Intervals& z) {
  constexpr double u = 0x1p-24;
  const Interval largest = *std::ranges::max_element(z, {}, &Interval::value);
  const auto n = static_cast<double>(z.size());
  double sum = 0, worst = 0;
  std::vector<double> power, relative;
  for (Interval v : z) {
    Interval difference = v - largest;
    power.push_back(std::exp(difference.value));
    relative.push_back(std::expm1(difference.error) * (1 + 4 * u) + 4 * u);
    sum += power.back();
    worst = std::max(worst, relative.back());
  }
  const double of_sum = worst + (1 + worst) * n * u / (1 - n * u);
  Intervals p;
  for (std::size_t i = 0; i < z.size(); ++i) {
    const double value = power[i] / sum;
    p.push_back({value, value * ((1 + relative[i]) * (1 + u) / (1 - of_sum) - 1)});
  }
  return p;
}

/// p (d − Σ p d).
inline Intervals bounded_softmax_backward(const Intervals& d, const Intervals& p) {
  Interval sum;
  for (std::size_t i = 0; i < d.size(); ++i) accumulate(sum, p[i], d[i], static_cast<double>(d.size()));
  Intervals dz;
  for (std::size_t i = 0; i < d.size(); ++i) dz.push_back(p[i] * (d[i] - sum));
  return dz;
}

/// One token's choice.
struct BoundedToken {
  Intervals probabilities;          // (E)
  Intervals gates;                  // (k)
  std::vector<std::size_t> chosen;  // (k)
  std::vector<bool> is_kept;        // (k)
};

/// Two logits are so close that rounding could decide, or comes within a factor of 2 of that in the worst
/// case.
struct DoubtfulChoice : std::runtime_error {
  DoubtfulChoice()
      : std::runtime_error("expected logits that rounding cannot reorder, given others: use other data") {}
};

/// \throws DoubtfulChoice
inline BoundedToken bounded_choice(const Intervals& logits, Index top_k) {
  BoundedToken token;
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, std::greater(), [&](std::size_t e) { return logits[e].value; });
  const auto k = static_cast<std::size_t>(top_k);
  for (std::size_t r = 0; r < std::min(k, order.size() - 1); ++r) {
    const Interval above = logits[order[r]], below = logits[order[r + 1]];
    if (above.value - below.value < 2 * (above.error + below.error)) throw DoubtfulChoice();
  }
  token.chosen.assign(order.begin(), order.begin() + top_k);
  token.probabilities = bounded_softmax(logits);
  Intervals chosen;
  for (std::size_t e : token.chosen) chosen.push_back(logits[e]);
  token.gates = top_k == 1 ? Intervals{token.probabilities[token.chosen[0]]} : bounded_softmax(chosen);
  return token;
}

/// Forward and backward of a mixture: "output", "input_grad" and each parameter's gradient.
class BoundedMixture {
 public:
  BoundedMixture(const MixtureModel& model, const RoutingRule& routing,
                 const std::map<std::string, Bounded>& weights, const Bounded& x, const Bounded& dout)
      : model_(model), routing_(routing), weights_(weights), x_(x), dout_(dout) {
    route();
    const Index batch = x_.rows;
    Bounded out(batch, dout.columns), dx(batch, x.columns), dgates(batch, routing.top_k);
    for (Index e = 0; e < model.num_experts; ++e) expert(e, out, dx, dgates);
    Bounded dlogits(batch, model.num_experts);
    for (Index t = 0; t < batch; ++t) router_backward(t, dgates, dlogits);
    const Bounded& router = weights_.at(router_name());
    results_.emplace(router_name(), product(transposed(x_), dlogits));
    Bounded through_router = product(dlogits, transposed(router));
    for (Index t = 0; t < batch; ++t)
      for (Index c = 0; c < x.columns; ++c) set(dx, t, c, get(dx, t, c) + get(through_router, t, c));
    results_.emplace("output", std::move(out));
    results_.emplace("input_grad", std::move(dx));
  }
  std::map<std::string, Bounded> results() && { return std::move(results_); }

 private:
  void route() {
    const Bounded logits = product(x_, weights_.at(router_name()));
    of_expert_.resize(static_cast<std::size_t>(model_.num_experts));
    for (Index t = 0; t < logits.rows; ++t) {
      Intervals row;
      for (Index e = 0; e < logits.columns; ++e)
        row.push_back(get(logits, t, e) - Interval{routing_.skew * static_cast<double>(e), 0}.rounded());
      tokens_.push_back(bounded_choice(row, routing_.top_k));
      for (std::size_t e : tokens_.back().chosen) ++of_expert_[e];
    }
    std::vector<Index> taken(of_expert_.size());
    const Index capacity = routing_.capacity(x_.rows, model_.num_experts);
    for (std::size_t r = 0; r < static_cast<std::size_t>(routing_.top_k); ++r)
      for (BoundedToken& token : tokens_) token.is_kept.push_back(taken[token.chosen[r]]++ < capacity);
  }

  /// The choices that an expert keeps: token and rank of each.
  using Slots = std::vector<std::pair<Index, std::size_t>>;
  Slots slots_of(Index e) const {
    Slots slots;
    for (std::size_t t = 0; t < tokens_.size(); ++t)
      for (std::size_t r = 0; r < tokens_[t].chosen.size(); ++r)
        if (tokens_[t].chosen[r] == static_cast<std::size_t>(e) && tokens_[t].is_kept[r])
          slots.emplace_back(static_cast<Index>(t), r);
    return slots;
  }

  /// One expert, forward and backward, on the tokens that it keeps.
  void expert(Index e, Bounded& out, Bounded& dx, Bounded& dgates) {
    const Slots slots = slots_of(e);
    const auto rows = static_cast<Index>(slots.size());
    Bounded a(rows, x_.columns), d(rows, dout_.columns);
    for (Index i = 0; i < rows; ++i) {
      auto [t, r] = slots[static_cast<std::size_t>(i)];
      for (Index c = 0; c < x_.columns; ++c) set(a, i, c, get(x_, t, c));
      for (Index c = 0; c < dout_.columns; ++c) set(d, i, c, gate(t, r) * get(dout_, t, c));
    }
    std::vector<Bounded> inputs;
    for (Index l = 0; l < model_.num_layers; ++l) {
      if (l % 2 == 1) apply_relu(a);
      inputs.push_back(a);
      a = product(a, weights_.at(expert_layer_name(e, l)));
    }
    combine(slots, a, out, dgates);
    for (Index l = model_.num_layers - 1; l >= 0; --l) {
      const Bounded& in = inputs[static_cast<std::size_t>(l)];
      results_.emplace(expert_layer_name(e, l), product(transposed(in), d));
      d = product(d, transposed(weights_.at(expert_layer_name(e, l))));
      if (l % 2 == 1) apply_relu_backward(d, in);
    }
    for (Index i = 0; i < rows; ++i)
      for (Index c = 0; c < d.columns; ++c)
        add_to(dx, slots[static_cast<std::size_t>(i)].first, c, one, get(d, i, c));
  }

  /// An expert's answers y in the output, and dL/dgate of each.
  void combine(const Slots& slots, const Bounded& y, Bounded& out, Bounded& dgates) const {
    for (Index i = 0; i < y.rows; ++i) {
      auto [t, r] = slots[static_cast<std::size_t>(i)];
      Interval dot;
      for (Index c = 0; c < y.columns; ++c) {
        accumulate(dot, get(dout_, t, c), get(y, i, c), static_cast<double>(y.columns));
        add_to(out, t, c, gate(t, r), get(y, i, c));
      }
      set(dgates, t, static_cast<Index>(r), dot);
    }
  }

  /// Adds a b to an element that is a sum over a token's experts.
  void add_to(Bounded& sums, Index t, Index c, Interval a, Interval b) const {
    Interval sum = get(sums, t, c);
    accumulate(sum, a, b, static_cast<double>(routing_.top_k));
    set(sums, t, c, sum);
  }

  /// Gates, and the balance: weight E f_e / B for each token's p_e.
  void router_backward(Index t, const Bounded& dgates, Bounded& dlogits) const {
    const BoundedToken& token = tokens_[static_cast<std::size_t>(t)];
    const auto batch = static_cast<double>(x_.rows);
    Intervals dp;
    for (Index count : of_expert_) {
      const double share = static_cast<double>(count) / (static_cast<double>(routing_.top_k) * batch);
      dp.push_back(Interval{routing_.aux_weight * static_cast<double>(model_.num_experts) * share / batch, 0}
                       .rounded());
    }
    if (routing_.top_k == 1) dp[token.chosen[0]] = dp[token.chosen[0]] + get(dgates, t, 0);
    Intervals dz = bounded_softmax_backward(dp, token.probabilities);
    if (routing_.top_k > 1) {
      Intervals dg;
      for (Index r = 0; r < routing_.top_k; ++r) dg.push_back(get(dgates, t, r));
      Intervals of_gates = bounded_softmax_backward(dg, token.gates);
      for (std::size_t r = 0; r < of_gates.size(); ++r)
        dz[token.chosen[r]] = dz[token.chosen[r]] + of_gates[r];
    }
    for (std::size_t e = 0; e < dz.size(); ++e) set(dlogits, t, static_cast<Index>(e), dz[e]);
  }

  Interval gate(Index t, std::size_t r) const { return tokens_[static_cast<std::size_t>(t)].gates[r]; }

  const MixtureModel& model_;
  const RoutingRule& routing_;
  const std::map<std::string, Bounded>& weights_;
  const Bounded& x_;
  const Bounded& dout_;
  std::vector<BoundedToken> tokens_;
  std::vector<Index> of_expert_;  // choices
  std::map<std::string, Bounded> results_;
};

inline std::map<std::string, Bounded> solve_bounded_mixture(const MixtureModel& model,
                                                            const RoutingRule& routing,
                                                            const std::map<std::string, Bounded>& weights,
                                                            const Bounded& input,
                                                            const Bounded& output_grad) {
  return BoundedMixture(model, routing, weights, input, output_grad).results();
}

}  // namespace shard::testing
