#include <algorithm>

#include "engine/proof/exact.hpp"
#include "engine/workloads/exact_values.hpp"
#include "engine/workloads/mlp/mlp.hpp"

namespace shard {

namespace {

using exact::Matrix;

HostTensor digit_rows(const Digits& digits, Index batch, const CounterRandom& random) {
  HostTensor t{{batch, Digits::pixels}, {}};
  for (Index row = 0; row < batch; ++row) {
    Index digit = random.integer(static_cast<std::uint64_t>(row), 0, static_cast<int>(digits.size()) - 1);
    for (Index p = 0; p < Digits::pixels; ++p) t.values.push_back(static_cast<float>(digits.pixel(digit, p)));
  }
  return t;
}

}  // namespace

ExactProblem make_exact_problem(const Model& model, Index batch, std::uint64_t seed) {
  return Mlp(model).exact_problem(batch, seed);
}

ExactProblem Mlp::exact_problem(Index batch, std::uint64_t seed) const {
  exact::require_hidden_dim(model_.hidden_dim, Index{1} << 18);
  ExactProblem problem;
  problem.workload = std::make_shared<Mlp>(*this);
  CounterRandom input(seed, "exact input");
  const Digits* digits = digits_of_width(model_.model_dim);
  problem.input = digits != nullptr ? digit_rows(*digits, batch, input)
                                    : exact::integers({batch, model_.model_dim}, input, 0, 16);
  if (batch > 1) std::fill_n(problem.input.values.rbegin(), model_.model_dim, 0.0F);
  problem.output_grad =
      exact::integers(output_shape(batch), CounterRandom(seed, "exact output gradient"), -2, 2);
  for (Index layer = 0; layer < model_.num_layers; ++layer) {
    CounterRandom random(seed, "exact " + layer_name(layer));
    problem.weights[layer_name(layer)] = model_.num_layers <= 2
                                             ? exact::integers(model_.shape(layer), random, -2, 2)
                                             : exact::sparse_signs(model_.shape(layer), random);
  }
  return problem;
}

namespace {

/// Whether a ReLU comes before a layer, or behind the last one, in a version with this mistake.
bool has_relu(Index layer, Index layers, Cause mistake) {
  if (mistake == Cause::relus_forgotten) return false;
  if (mistake == Cause::relu_before_each) return layer < layers;
  if (mistake == Cause::relu_behind_each) return layer > 0;
  if (mistake == Cause::relu_between) return layer > 0 && layer < layers;
  return layer < layers && relu_before(layer);
}

void mask(Matrix& d, const Matrix& kept) {
  for (std::size_t k = 0; k < d.values.size(); ++k)
    if (kept.values[k] <= 0) d.values[k] = 0;
}

/// The matrix that a version with this mistake keeps for a layer's gradient. `inputs`: the input of each
/// layer, and the output. `before`: the same before the ReLUs.
const Matrix& kept(Index layer, const std::vector<Matrix>& inputs, const std::vector<Matrix>& before,
                   Cause mistake) {
  const bool begins_block = !relu_before(layer) && layer + 2 < std::ssize(inputs);
  const auto l = static_cast<std::size_t>(layer);
  if (mistake == Cause::kept_before_relu) return before[l];
  if (mistake == Cause::kept_output && begins_block) return inputs[l + 2];
  if (mistake == Cause::kept_first && begins_block) return inputs[0];
  return inputs[l];
}

}  // namespace

std::vector<Cause> Mlp::mistakes() const {
  return {Cause::mask_forgotten,   Cause::relus_forgotten,  Cause::relu_between,
          Cause::relu_before_each, Cause::relu_behind_each, Cause::kept_before_relu,
          Cause::kept_output,      Cause::kept_first,       Cause::block_left_out};
}

/// Follows the definitions, except for the mistake.
Solution Mlp::solve_with(Cause mistake, const ExactProblem& problem, Communicator&) const {
  const Index layers = model_.num_layers;
  Solution results;
  std::vector<Matrix> weights, inputs, before;
  Matrix a(problem.input);
  for (Index l = 0; l <= layers; ++l) {
    before.push_back(a);
    for (double& value : a.values)
      if (has_relu(l, layers, mistake)) value = std::max(value, 0.0);
    inputs.push_back(a);
    if (l == layers) break;
    weights.emplace_back(problem.weights.at(layer_name(l)));
    a = product(a, weights.back());
  }
  results["output"] = a.as_floats();
  Matrix d(problem.output_grad);
  if (has_relu(layers, layers, mistake)) mask(d, a);
  for (Index l = layers - 1; l >= 0; --l) {
    if (l == std::min<Index>(1, layers - 1)) results["input_grad"] = d.as_floats();
    results[layer_name(l)] = product(kept(l, inputs, before, mistake).transposed(), d).as_floats();
    d = product(d, weights[static_cast<std::size_t>(l)].transposed());
    if (has_relu(l, layers, mistake) && mistake != Cause::mask_forgotten)
      mask(d, inputs[static_cast<std::size_t>(l)]);
  }
  if (mistake != Cause::block_left_out) results["input_grad"] = d.as_floats();
  return results;
}

}  // namespace shard
