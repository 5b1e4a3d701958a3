#include <algorithm>
#include <cmath>

#include "engine/proof/exact.hpp"
#include "engine/workloads/mixture/problem.hpp"
#include "engine/workloads/mlp/mlp.hpp"

namespace shard {

namespace {

using exact::Matrix;
using exact::product;
using exact::require_exact;
using exact::unit_of;

/// The choices that found a slot, by expert and then by token.
struct Slots {
  Matrix tokens;                                   ///< (n, T), a one in each row: in the column of its token
  Matrix gates;                                    ///< (n, T), the choice's gate there
  std::vector<std::pair<Index, Index>> choices{};  ///< the token and the rank of each
  std::vector<Range> of_expert{};

  Slots(const std::vector<ExactToken>& all, Index experts) : tokens(0, std::ssize(all)), gates(tokens) {
    for (Index e = 0; e < experts; ++e) {
      of_expert.push_back({tokens.rows, tokens.rows});
      for (std::size_t t = 0; t < all.size(); ++t)
        for (std::size_t r = 0; r < all[t].chosen.size(); ++r)
          if (all[t].chosen[r] == e && all[t].is_kept[r]) add(t, r, all[t].gates[r]);
      of_expert.back().end = tokens.rows;
    }
  }

 private:
  void add(std::size_t token, std::size_t rank, double gate) {
    choices.emplace_back(token, rank);
    for (auto [matrix, value] : {std::pair{&tokens, 1.0}, {&gates, gate}}) {
      matrix->values.resize(matrix->values.size() + static_cast<std::size_t>(matrix->columns));
      matrix->at(matrix->rows++, static_cast<Index>(token)) = value;
    }
  }
};

Matrix rows_of(const Matrix& m, Range rows) {
  Matrix some(rows.size(), m.columns);
  std::copy_n(m.values.begin() + rows.begin * m.columns, rows.size() * m.columns, some.values.begin());
  return some;
}

/// The results of the experts, each of its rows: y and dL/dx (n, ·), and the gradients of layers.
struct Answers {
  Matrix y, dx;

  /// `x` and `dy`: of all slots, (n, ·).
  Answers(const ExactProblem& problem, const Slots& slots, const Matrix& x, const Matrix& dy, Cause mistake,
          Communicator& group, Solution& results)
      : y(0, dy.columns), dx(0, x.columns) {
    const MixtureModel& m = as_mixture(*problem.workload).model();
    const auto expert = std::make_shared<Mlp>(m);
    for (Index e = 0; e < m.num_experts; ++e) {
      const Range mine = slots.of_expert[static_cast<std::size_t>(e)];
      ExactProblem of_expert{expert, rows_of(x, mine).as_floats(), rows_of(dy, mine).as_floats(), {}};
      for (Index l = 0; l < m.num_layers; ++l)
        of_expert.weights[layer_name(l)] = problem.weights.at(expert_layer_name(e, l));
      Solution solved = expert->solve_with(mistake, of_expert, group);
      for (Index l = 0; l < m.num_layers; ++l)
        results[expert_layer_name(e, l)] = std::move(solved[layer_name(l)]);
      for (auto [all, name] : {std::pair{&y, "output"}, {&dx, Gradients::input_grad}}) {
        all->values.insert(all->values.end(), solved[name].values.begin(), solved[name].values.end());
        all->rows += mine.size();
      }
    }
  }
};

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
    // No product is smaller than p's unit times the difference's, which is p's times d's.
    require_exact(std::abs(d[i]) + magnitude, unit_p * unit_d);
    result.push_back(p[i] * (d[i] - sum));
  }
  return result;
}

/// The balancing loss's derivative by each token's probabilities, as a float32.
std::vector<double> balance(const Mixture& mixture, const std::vector<ExactToken>& tokens) {
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
Matrix logits_backward(const Mixture& mixture, const std::vector<ExactToken>& tokens, const Matrix& dgates) {
  const std::vector<double> of_expert = balance(mixture, tokens);
  Matrix dlogits(0, mixture.model().num_experts);
  for (const ExactToken& token : tokens) {
    std::vector<double> dp = of_expert;
    const Matrix dgate = rows_of(dgates, {dlogits.rows, dlogits.rows + 1});
    if (dgates.columns == 1) dp[static_cast<std::size_t>(token.chosen[0])] += dgate.values[0];
    std::vector<double> dz = softmax_backward(dp, token.probabilities);
    if (dgates.columns > 1) {
      const std::vector<double> of_gates = softmax_backward(dgate.values, token.gates);
      for (std::size_t r = 0; r < token.chosen.size(); ++r) {
        double& sum = dz[static_cast<std::size_t>(token.chosen[r])];
        require_exact(std::abs(sum) + std::abs(of_gates[r]), std::min(unit_of(sum), unit_of(of_gates[r])));
        sum += of_gates[r];
      }
    }
    dlogits.values.insert(dlogits.values.end(), dz.begin(), dz.end());
    ++dlogits.rows;
  }
  return dlogits;
}

}  // namespace

Solution solve_mixture(const ExactProblem& problem, Cause mistake, Communicator& group) {
  const Mixture& mixture = as_mixture(*problem.workload);
  const Matrix x(problem.input), dout(problem.output_grad), router(problem.weights.at(router_name()));
  const std::vector<ExactToken> tokens = exact_choices(problem);
  const Slots slots(tokens, mixture.model().num_experts);
  Solution results;
  const Answers answers(problem, slots, product(slots.tokens, x), product(slots.gates, dout), mistake, group,
                        results);
  results["output"] = product(slots.gates.transposed(), answers.y).as_floats();

  Matrix dgates(x.rows, mixture.rule().top_k);  // of each choice: its token's row of dout times the answer
  for (Index i = 0; i < answers.y.rows; ++i) {
    const auto [token, rank] = slots.choices[static_cast<std::size_t>(i)];
    const Matrix answer = rows_of(answers.y, {i, i + 1}).transposed();
    dgates.at(token, rank) = product(rows_of(dout, {token, token + 1}), answer).at(0, 0);
  }
  const Matrix dlogits = logits_backward(mixture, tokens, dgates);
  results[router_name()] = product(x.transposed(), dlogits).as_floats();

  const Matrix through_router = product(dlogits, router.transposed()), back = slots.tokens.transposed();
  Matrix dx = product(back, answers.dx), absolute = answers.dx;
  for (double& value : absolute.values) value = std::abs(value);
  absolute = product(back, absolute);
  const double unit = std::min(unit_of(answers.dx), unit_of(through_router));
  for (std::size_t i = 0; i < dx.values.size(); ++i) {
    require_exact(absolute.values[i] + std::abs(through_router.values[i]), unit);
    dx.values[i] += through_router.values[i];
  }
  results[Gradients::input_grad] = dx.as_floats();
  return results;
}

}  // namespace shard
