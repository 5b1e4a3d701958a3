#include "engine/proof/exact.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/workloads/digits.hpp"
#include "engine/workloads/random.hpp"

namespace shard {

namespace exact {

HostTensor integers(Shape shape, const CounterRandom& random, int low, int high, float scale) {
  HostTensor t{shape, {}};
  for (Index i = 0; i < num_elements(shape); ++i)
    t.values.push_back(scale * static_cast<float>(random.integer(static_cast<std::uint64_t>(i), low, high)));
  return t;
}

HostTensor sparse_signs(Shape shape, const CounterRandom& random) {
  HostTensor t{shape, std::vector<float>(static_cast<std::size_t>(num_elements(shape)))};
  for (Index column = 0; column < shape[1]; ++column)
    for (Index entry = 0; entry < 2; ++entry) {
      auto draw = static_cast<std::uint64_t>(4 * column + 2 * entry);
      Index row = random.integer(draw, 0, static_cast<int>(shape[0]) - 1);
      t.values[static_cast<std::size_t>(row * shape[1] + column)] =
          random.integer(draw + 1, 0, 1) == 0 ? -1.0F : 1.0F;
    }
  return t;
}

Matrix::Matrix(Index r, Index c) : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}

Matrix::Matrix(const HostTensor& t) : Matrix(t.shape[0], t.shape[1]) {
  std::ranges::copy(t.values, values.begin());
}

Matrix Matrix::transposed() const {
  Matrix t(columns, rows);
  for (Index r = 0; r < rows; ++r)
    for (Index c = 0; c < columns; ++c) t.at(c, r) = at(r, c);
  return t;
}

HostTensor Matrix::as_floats() const {
  return {{rows, columns}, {values.begin(), values.end()}};
}

double unit_of(double value) {
  if (value == 0) return HUGE_VAL;
  int exponent = 0;
  auto mantissa = static_cast<std::int64_t>(std::ldexp(std::frexp(value, &exponent), 53));
  return std::ldexp(1.0, exponent - 53 + std::countr_zero(static_cast<std::uint64_t>(mantissa)));
}

double unit_of(const Matrix& m) {
  double unit = HUGE_VAL;
  for (double value : m.values) unit = std::min(unit, unit_of(value));
  return unit;
}

void require_exact(double magnitude, double unit) {
  constexpr double largest_exact = 0x1p24;  // every integer up to here is a float32
  if (magnitude <= largest_exact * unit) return;
  throw Error(Code::internal,
              fmt::format("exact mode: expected sums of at most 2^24{}, given {}: use a smaller problem",
                          unit == 1 ? "" : fmt::format(" units of {}", unit), magnitude / unit));
}

namespace {

Matrix product_in_units(const Matrix& a, const Matrix& b, double unit) {
  Matrix c(a.rows, b.columns);
  for (Index i = 0; i < a.rows; ++i)
    for (Index j = 0; j < b.columns; ++j) {
      double magnitude = 0;
      for (Index k = 0; k < a.columns; ++k) {
        const double term = a.at(i, k) * b.at(k, j);
        c.at(i, j) += term;
        magnitude += std::abs(term);
      }
      require_exact(magnitude, unit);
    }
  return c;
}

}  // namespace

Matrix product(const Matrix& a, const Matrix& b) {
  return product_in_units(a, b, 1);
}

Matrix scaled_product(const Matrix& a, const Matrix& b) {
  return product_in_units(a, b, unit_of(a) * unit_of(b));
}

}  // namespace exact

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

ExactProblem make_exact_problem(const Model& model, Index batch, std::uint64_t seed, const Digits* digits) {
  ExactProblem problem;
  problem.model = model;
  CounterRandom input(seed, "exact input");
  problem.input = digits != nullptr && model.model_dim == Digits::pixels
                      ? digit_rows(*digits, batch, input)
                      : exact::integers({batch, model.model_dim}, input, 0, 16);
  if (batch > 1) std::fill_n(problem.input.values.rbegin(), model.model_dim, 0.0F);
  problem.output_grad = exact::integers({batch, model.width(model.num_layers)},
                                        CounterRandom(seed, "exact output gradient"), -2, 2);
  for (Index layer = 0; layer < model.num_layers; ++layer) {
    CounterRandom random(seed, "exact " + layer_name(layer));
    problem.weights[layer_name(layer)] = model.num_layers <= 2
                                             ? exact::integers(model.shape(layer), random, -2, 2)
                                             : exact::sparse_signs(model.shape(layer), random);
  }
  return problem;
}

std::map<std::string, HostTensor> solve(const ExactProblem& problem) {
  std::map<std::string, HostTensor> results;
  std::vector<Matrix> weights;
  std::vector<Matrix> inputs;
  Matrix a(problem.input);
  for (Index l = 0; l < problem.model.num_layers; ++l) {
    weights.emplace_back(problem.weights.at(layer_name(l)));
    if (l % 2 == 1)
      for (double& value : a.values) value = std::max(value, 0.0);
    inputs.push_back(a);
    a = product(a, weights.back());
  }
  results["output"] = a.as_floats();
  Matrix d(problem.output_grad);
  for (Index l = problem.model.num_layers - 1; l >= 0; --l) {
    auto i = static_cast<std::size_t>(l);
    results[layer_name(l)] = product(inputs[i].transposed(), d).as_floats();
    d = product(d, weights[i].transposed());
    if (l % 2 == 1)
      for (std::size_t k = 0; k < d.values.size(); ++k)
        if (inputs[i].values[k] <= 0) d.values[k] = 0;
  }
  results["input_grad"] = d.as_floats();
  return results;
}

void integer_step(ExactProblem& problem, const std::map<std::string, HostTensor>& gradients) {
  for (auto& [name, weights] : problem.weights) {
    if (name == router_name()) continue;
    const std::vector<float>& gradient = gradients.at(name).values;
    for (std::size_t i = 0; i < weights.values.size(); ++i) {
      auto difference = static_cast<std::int64_t>(weights.values[i]) - static_cast<std::int64_t>(gradient[i]);
      weights.values[i] = static_cast<float>(((difference % 5) + 5) % 5 - 2);
    }
  }
}

}  // namespace shard
