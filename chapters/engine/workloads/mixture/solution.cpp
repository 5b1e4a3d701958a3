#include <algorithm>
#include <cmath>

#include "engine/proof/exact.hpp"
#include "engine/workloads/mixture/choices.hpp"
#include "engine/workloads/mixture/problem.hpp"

namespace shard {

namespace {

using exact::Matrix;
using exact::product;
using exact::require_exact;
using exact::unit_of;

const MixtureModel& model_of(const ExactProblem& problem) {
  return as_mixture(*problem.workload).model();
}

/// The choices that one expert works on: token and rank of each.
struct Slot {
  Index token;
  std::size_t rank;
};
std::vector<Slot> slots_of(Index expert, const std::vector<ExactToken>& tokens) {
  std::vector<Slot> slots;
  for (std::size_t t = 0; t < tokens.size(); ++t)
    for (std::size_t r = 0; r < tokens[t].chosen.size(); ++r)
      if (tokens[t].chosen[r] == expert && tokens[t].is_kept[r]) slots.push_back({static_cast<Index>(t), r});
  return slots;
}

/// Rows of a matrix, each times its gate where there are gates.
Matrix rows_of(const Matrix& all, const std::vector<Slot>& slots,
               const std::vector<ExactToken>* gates = nullptr) {
  Matrix rows(static_cast<Index>(slots.size()), all.columns);
  for (Index i = 0; i < rows.rows; ++i) {
    auto [t, r] = slots[static_cast<std::size_t>(i)];
    for (Index c = 0; c < all.columns; ++c)
      rows.at(i, c) = all.at(t, c) * (gates ? (*gates)[static_cast<std::size_t>(t)].gates[r] : 1.0);
  }
  return rows;
}

/// Adds rows to those of their tokens; `magnitude` adds up absolute values, for require_sum.
void add_rows(const Matrix& rows, const std::vector<Slot>& slots, const std::vector<ExactToken>* gates,
              Matrix& sum, Matrix& magnitude) {
  for (Index i = 0; i < rows.rows; ++i) {
    auto [t, r] = slots[static_cast<std::size_t>(i)];
    for (Index c = 0; c < rows.columns; ++c) {
      double term = rows.at(i, c) * (gates ? (*gates)[static_cast<std::size_t>(t)].gates[r] : 1.0);
      sum.at(t, c) += term;
      magnitude.at(t, c) += std::abs(term);
    }
  }
}

void require_sum(const Matrix& magnitude, double unit) {
  for (double m : magnitude.values) require_exact(m, unit);
}

/// dL/dgate of each choice: its token's row of dout times the expert's answer.
void dot_gates(const Matrix& dout, const Matrix& y, const std::vector<Slot>& slots, Matrix& dgates) {
  for (Index i = 0; i < y.rows; ++i) {
    auto [t, r] = slots[static_cast<std::size_t>(i)];
    Matrix of_token(1, y.columns), answer(y.columns, 1);
    for (Index c = 0; c < y.columns; ++c) {
      of_token.at(0, c) = dout.at(t, c);
      answer.at(c, 0) = y.at(i, c);
    }
    dgates.at(t, static_cast<Index>(r)) = product(of_token, answer).at(0, 0);
  }
}

/// p (d − Σ p d), each sum exact.
std::vector<double> softmax_backward(const std::vector<double>& d, const std::vector<double>& p) {
  double sum = 0, magnitude = 0, unit_p = HUGE_VAL, unit_d = HUGE_VAL;
  for (std::size_t i = 0; i < d.size(); ++i) {
    sum += p[i] * d[i];
    magnitude += std::abs(p[i] * d[i]);
    unit_p = std::min(unit_p, unit_of(p[i]));
    unit_d = std::min(unit_d, unit_of(d[i]));
  }
  std::vector<double> result;
  for (std::size_t i = 0; i < d.size(); ++i) {
    // The addends of the difference are multiples of unit_p · unit_d.
    require_exact(std::abs(d[i]) + magnitude, unit_p * unit_d);
    result.push_back(p[i] * (d[i] - sum));
  }
  return result;
}

/// The balancing loss's derivative by each token's probabilities, as a float32.
std::vector<double> balance(const ExactProblem& problem, const std::vector<ExactToken>& tokens) {
  const Mixture& mixture = as_mixture(*problem.workload);
  const auto k = static_cast<double>(mixture.rule().top_k), batch = static_cast<double>(tokens.size());
  const auto num_experts = static_cast<double>(mixture.model().num_experts);
  std::vector<double> of_expert(static_cast<std::size_t>(mixture.model().num_experts));
  for (const ExactToken& token : tokens)
    for (Index e : token.chosen) ++of_expert[static_cast<std::size_t>(e)];
  for (double& count : of_expert)
    count = static_cast<float>(mixture.rule().aux_weight * num_experts * count / (k * batch * batch));
  return of_expert;
}

/// dL/dlogits, from dL/dgates (tokens, k), by the definitions: gates are probabilities, or these divided by
/// their sum.
Matrix logits_backward(const ExactProblem& problem, const std::vector<ExactToken>& tokens,
                       const Matrix& dgates) {
  const std::vector<double> of_expert = balance(problem, tokens);
  Matrix dlogits(dgates.rows, model_of(problem).num_experts);
  for (Index t = 0; t < dgates.rows; ++t) {
    const ExactToken& token = tokens[static_cast<std::size_t>(t)];
    std::vector<double> dp = of_expert;
    if (dgates.columns == 1) dp[static_cast<std::size_t>(token.chosen[0])] += dgates.at(t, 0);
    std::vector<double> dz = softmax_backward(dp, token.probabilities);
    if (dgates.columns > 1) {
      auto row = dgates.values.begin() + t * dgates.columns;
      std::vector<double> of_gates = softmax_backward({row, row + dgates.columns}, token.gates);
      for (std::size_t r = 0; r < token.chosen.size(); ++r) {
        double& sum = dz[static_cast<std::size_t>(token.chosen[r])];
        require_exact(std::abs(sum) + std::abs(of_gates[r]), std::min(unit_of(sum), unit_of(of_gates[r])));
        sum += of_gates[r];
      }
    }
    for (Index e = 0; e < dlogits.columns; ++e) dlogits.at(t, e) = dz[static_cast<std::size_t>(e)];
  }
  return dlogits;
}

/// One expert's layers on some rows: each layer's input, and last the answer.
std::vector<Matrix> expert_forward(const ExactProblem& problem, Index e, Matrix a, Cause mistake) {
  std::vector<Matrix> inputs;
  for (Index l = 0; l < model_of(problem).num_layers; ++l) {
    if (relu_before(l) && mistake != Cause::relus_forgotten)
      for (double& value : a.values) value = std::max(value, 0.0);
    inputs.push_back(a);
    a = product(a, Matrix(problem.weights.at(expert_layer_name(e, l))));
  }
  inputs.push_back(std::move(a));
  return inputs;
}

/// Its gradients; returns that of the rows.
Matrix expert_backward(const ExactProblem& problem, Index e, const std::vector<Matrix>& inputs, Matrix d,
                       Solution& results, Cause mistake) {
  const bool has_masks = mistake != Cause::mask_forgotten && mistake != Cause::relus_forgotten;
  for (Index l = model_of(problem).num_layers - 1; l >= 0; --l) {
    const Matrix& a = inputs[static_cast<std::size_t>(l)];
    results[expert_layer_name(e, l)] = product(a.transposed(), d).as_floats();
    d = product(d, Matrix(problem.weights.at(expert_layer_name(e, l))).transposed());
    for (std::size_t i = 0; i < d.values.size() && relu_before(l) && has_masks; ++i)
      if (a.values[i] <= 0) d.values[i] = 0;
  }
  return d;
}

}  // namespace

Solution solve_mixture(const ExactProblem& problem, Cause mistake) {
  const MixtureModel& m = model_of(problem);
  const Matrix x(problem.input), dout(problem.output_grad), router(problem.weights.at(router_name()));
  const std::vector<ExactToken> tokens = exact_choices(problem);
  Solution results;
  Matrix out(x.rows, m.width(m.num_layers)), out_magnitude(out);
  Matrix dgates(x.rows, as_mixture(*problem.workload).rule().top_k);
  Matrix dx(x.rows, x.columns), dx_magnitude(dx);
  double out_unit = HUGE_VAL, dx_unit = HUGE_VAL;
  for (Index e = 0; e < m.num_experts; ++e) {
    const std::vector<Slot> slots = slots_of(e, tokens);
    const std::vector<Matrix> inputs = expert_forward(problem, e, rows_of(x, slots), mistake);
    const Matrix& y = inputs.back();
    const Matrix weighted = rows_of(dout, slots, &tokens);
    add_rows(y, slots, &tokens, out, out_magnitude);
    for (const ExactToken& token : tokens)
      for (double gate : token.gates) out_unit = std::min(out_unit, unit_of(y) * unit_of(gate));
    dot_gates(dout, y, slots, dgates);
    const Matrix drows = expert_backward(problem, e, inputs, weighted, results, mistake);
    add_rows(drows, slots, nullptr, dx, dx_magnitude);
    dx_unit = std::min(dx_unit, unit_of(drows));
  }
  require_sum(out_magnitude, out_unit);
  results["output"] = out.as_floats();
  const Matrix dlogits = logits_backward(problem, tokens, dgates);
  results[router_name()] = product(x.transposed(), dlogits).as_floats();
  const Matrix through_router = product(dlogits, router.transposed());
  for (std::size_t i = 0; i < dx.values.size(); ++i) {
    dx.values[i] += through_router.values[i];
    dx_magnitude.values[i] += std::abs(through_router.values[i]);
  }
  require_sum(dx_magnitude, std::min(dx_unit, unit_of(through_router)));
  results["input_grad"] = dx.as_floats();
  return results;
}

}  // namespace shard
