#include "exact_mixture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "engine/digits.hpp"
#include "engine/random.hpp"

namespace shard {

namespace {

constexpr double largest_exact = 0x1p24;  // every integer up to here is a float32
constexpr float logit_step = 128;         // exp(-128) is 0 in float32

/// The largest power of two that divides a number; infinite for 0, which is a multiple of any.
double unit_of(double value) {
  if (value == 0) return HUGE_VAL;
  int exponent = 0;
  auto mantissa = static_cast<std::int64_t>(std::ldexp(std::frexp(value, &exponent), 53));
  double unit = std::ldexp(1.0, exponent - 53);
  for (; mantissa % 2 == 0; mantissa /= 2) unit *= 2;
  return unit;
}

/// A sum whose addends are multiples of `unit`, and whose absolute values add up to `magnitude`, is exact in
/// float32 in any order if this holds.
void require_exact(double magnitude, double unit) {
  if (magnitude > largest_exact * unit)
    throw Error(Code::internal,
                fmt::format("exact mode: expected sums of at most 2^24 units of {}, given {}: use a "
                            "smaller problem",
                            unit, magnitude / unit));
}

/// Row-major (rows, columns), of integers times powers of two: float64 holds them and their products exactly.
struct Matrix {
  Index rows = 0;
  Index columns = 0;
  std::vector<double> values;

  Matrix(Index r, Index c) : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}
  explicit Matrix(const HostTensor& t) : Matrix(t.shape[0], t.shape[1]) {
    std::ranges::copy(t.values, values.begin());
  }
  double& at(Index r, Index c) { return values[static_cast<std::size_t>(r * columns + c)]; }
  double at(Index r, Index c) const { return values[static_cast<std::size_t>(r * columns + c)]; }
  double unit() const {
    double unit = HUGE_VAL;
    for (double v : values) unit = std::min(unit, unit_of(v));
    return unit;
  }
  HostTensor as_floats() const { return {{rows, columns}, {values.begin(), values.end()}}; }
  Matrix transposed() const {
    Matrix t(columns, rows);
    for (Index r = 0; r < rows; ++r)
      for (Index c = 0; c < columns; ++c) t.at(c, r) = at(r, c);
    return t;
  }
};

Matrix product(const Matrix& a, const Matrix& b) {
  const double unit = a.unit() * b.unit();
  Matrix c(a.rows, b.columns);
  for (Index i = 0; i < a.rows; ++i)
    for (Index j = 0; j < b.columns; ++j) {
      double magnitude = 0;
      for (Index k = 0; k < a.columns; ++k) {
        c.at(i, j) += a.at(i, k) * b.at(k, j);
        magnitude += std::abs(a.at(i, k) * b.at(k, j));
      }
      require_exact(magnitude, unit);
    }
  return c;
}

/// What one token's router output comes to.
struct Token {
  std::vector<double> probabilities;  // of each expert
  std::vector<Index> chosen;          // k of them
  std::vector<double> gates;          // k
  std::vector<bool> is_kept;          // k
};

bool is_power_of_two(Index n) {
  return n > 0 && (n & (n - 1)) == 0;
}

/// The choice of one token by its logits, or nothing if its gates would not be exact.
std::optional<Token> choose(const std::vector<double>& logits, Index top_k) {
  const double largest = *std::ranges::max_element(logits);
  const auto ties = std::ranges::count(logits, largest);
  const Index chosen_ties = std::min<Index>(ties, top_k);
  for (double z : logits)
    if (z != largest && largest - z < double{logit_step}) return std::nullopt;
  if (!is_power_of_two(ties) || ties > 8 || !is_power_of_two(chosen_ties)) return std::nullopt;
  Token token;
  for (double z : logits) token.probabilities.push_back(z == largest ? 1.0 / static_cast<double>(ties) : 0.0);
  std::vector<Index> order(logits.size());
  std::iota(order.begin(), order.end(), Index{0});
  std::ranges::stable_sort(order, std::greater(),
                           [&](Index e) { return logits[static_cast<std::size_t>(e)]; });
  token.chosen.assign(order.begin(), order.begin() + top_k);
  const double of_tie = 1.0 / static_cast<double>(top_k == 1 ? ties : chosen_ties);
  for (Index e : token.chosen)
    token.gates.push_back(logits[static_cast<std::size_t>(e)] == largest ? of_tie : 0.0);
  return token;
}

/// Every token's choices, and which of them find a slot: ranks first, then tokens.
std::vector<Token> route(const ExactProblem& problem) {
  const Model& m = problem.model;
  Matrix logits = product(Matrix(problem.input), Matrix(problem.weights.at(router_name())));
  std::vector<Token> tokens;
  for (Index t = 0; t < logits.rows; ++t) {
    auto row = logits.values.begin() + t * m.num_experts;
    std::optional<Token> token = choose({row, row + m.num_experts}, problem.routing.top_k);
    if (!token)
      throw Error(Code::internal, fmt::format("exact mode: expected exact gates, given token {}", t));
    tokens.push_back(std::move(*token));
  }
  std::vector<Index> taken(static_cast<std::size_t>(m.num_experts));
  for (std::size_t r = 0; r < static_cast<std::size_t>(problem.routing.top_k); ++r)
    for (Token& token : tokens)
      token.is_kept.push_back(taken[static_cast<std::size_t>(token.chosen[r])]++ <
                              problem.routing.capacity(logits.rows, m.num_experts));
  return tokens;
}

/// The choices that one expert works on: token and rank of each.
struct Slot {
  Index token;
  std::size_t rank;
};
std::vector<Slot> slots_of(Index expert, const std::vector<Token>& tokens) {
  std::vector<Slot> slots;
  for (std::size_t t = 0; t < tokens.size(); ++t)
    for (std::size_t r = 0; r < tokens[t].chosen.size(); ++r)
      if (tokens[t].chosen[r] == expert && tokens[t].is_kept[r]) slots.push_back({static_cast<Index>(t), r});
  return slots;
}

/// Rows of a matrix, each times its gate where there are gates.
Matrix rows_of(const Matrix& all, const std::vector<Slot>& slots, const std::vector<Token>* gates = nullptr) {
  Matrix rows(static_cast<Index>(slots.size()), all.columns);
  for (Index i = 0; i < rows.rows; ++i) {
    auto [t, r] = slots[static_cast<std::size_t>(i)];
    for (Index c = 0; c < all.columns; ++c)
      rows.at(i, c) = all.at(t, c) * (gates ? (*gates)[static_cast<std::size_t>(t)].gates[r] : 1.0);
  }
  return rows;
}

/// Adds rows to those of their tokens; `magnitude` adds up absolute values, for require_sum.
void add_rows(const Matrix& rows, const std::vector<Slot>& slots, const std::vector<Token>* gates,
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
    // No product is smaller than p's unit times the difference's, which is p's times d's.
    require_exact(std::abs(d[i]) + magnitude, unit_p * unit_d);
    result.push_back(p[i] * (d[i] - sum));
  }
  return result;
}

/// The balancing loss's derivative by each token's probabilities, as a float32.
std::vector<double> balance(const ExactProblem& problem, const std::vector<Token>& tokens) {
  const auto k = static_cast<double>(problem.routing.top_k), batch = static_cast<double>(tokens.size());
  const auto num_experts = static_cast<double>(problem.model.num_experts);
  std::vector<double> of_expert(static_cast<std::size_t>(problem.model.num_experts));
  for (const Token& token : tokens)
    for (Index e : token.chosen) ++of_expert[static_cast<std::size_t>(e)];
  for (double& count : of_expert)
    count = static_cast<float>(problem.routing.aux_weight * num_experts * count / (k * batch * batch));
  return of_expert;
}

/// dL/dlogits, from dL/dgates (tokens, k), by the definitions: gates are probabilities, or these divided by
/// their sum.
Matrix logits_backward(const ExactProblem& problem, const std::vector<Token>& tokens, const Matrix& dgates) {
  const std::vector<double> of_expert = balance(problem, tokens);
  Matrix dlogits(dgates.rows, problem.model.num_experts);
  for (Index t = 0; t < dgates.rows; ++t) {
    const Token& token = tokens[static_cast<std::size_t>(t)];
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
std::vector<Matrix> expert_forward(const ExactProblem& problem, Index e, Matrix a) {
  std::vector<Matrix> inputs;
  for (Index l = 0; l < problem.model.num_layers; ++l) {
    if (l % 2 == 1)
      for (double& value : a.values) value = std::max(value, 0.0);
    inputs.push_back(a);
    a = product(a, Matrix(problem.weights.at(expert_layer_name(e, l))));
  }
  inputs.push_back(std::move(a));
  return inputs;
}

/// Its gradients; returns that of the rows.
Matrix expert_backward(const ExactProblem& problem, Index e, const std::vector<Matrix>& inputs, Matrix d,
                       std::map<std::string, HostTensor>& results) {
  for (Index l = problem.model.num_layers - 1; l >= 0; --l) {
    const Matrix& a = inputs[static_cast<std::size_t>(l)];
    results[expert_layer_name(e, l)] = product(a.transposed(), d).as_floats();
    d = product(d, Matrix(problem.weights.at(expert_layer_name(e, l))).transposed());
    for (std::size_t i = 0; i < d.values.size() && l % 2 == 1; ++i)
      if (a.values[i] <= 0) d.values[i] = 0;
  }
  return d;
}

HostTensor integers(Shape shape, const CounterRandom& random, int low, int high, float scale = 1) {
  HostTensor t{shape, {}};
  for (Index i = 0; i < num_elements(shape); ++i)
    t.values.push_back(scale * static_cast<float>(random.integer(static_cast<std::uint64_t>(i), low, high)));
  return t;
}

/// Two entries ±1 a column: values grow by 2 a layer at most.
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

/// −128, 0 or 128. Columns are equal in groups of 1, 2, 4, 1, ... experts, so that these tie; a group's are
/// spread.
HostTensor tied_router(const Model& m, const CounterRandom& random) {
  std::vector<Index> experts(static_cast<std::size_t>(m.num_experts));
  std::iota(experts.begin(), experts.end(), Index{0});
  std::ranges::sort(experts, {}, [&](Index e) { return random.bits(static_cast<std::uint64_t>(e)); });
  HostTensor router{{m.model_dim, m.num_experts},
                    std::vector<float>(static_cast<std::size_t>(m.model_dim * m.num_experts))};
  std::uint64_t draw = static_cast<std::uint64_t>(m.num_experts);
  std::size_t group = 1;
  for (std::size_t begin = 0; begin < experts.size(); begin += group, group = group == 4 ? 1 : 2 * group)
    for (Index row = 0; row < m.model_dim; ++row) {
      auto value = logit_step * static_cast<float>(random.integer(draw++, -1, 1));
      for (std::size_t i = begin; i < std::min(begin + group, experts.size()); ++i)
        router.values[static_cast<std::size_t>(row * m.num_experts + experts[i])] = value;
    }
  return router;
}

/// Rows drawn until each has exact gates, the last of several all zeros if that is exact too: the kink of
/// every ReLU. Nothing if there seem to be none.
std::optional<HostTensor> input_for(const HostTensor& router, Index top_k, Index batch,
                                    const CounterRandom& random, const Digits* digits) {
  const Index width = router.shape[0];
  auto has_exact_gates = [&](const std::vector<float>& row) {
    Matrix logits = product(Matrix({{1, width}, row}), Matrix(router));
    return choose(logits.values, top_k).has_value();
  };
  HostTensor input{{batch, width}, {}};
  std::uint64_t draw = 0;
  for (Index i = 0; i < batch; ++i) {
    std::vector<float> row(static_cast<std::size_t>(width));
    bool is_good = i > 0 && i == batch - 1 && has_exact_gates(row);
    for (int attempt = 0; !is_good && attempt < 64; ++attempt) {
      Index digit = digits == nullptr ? 0 : random.integer(draw++, 0, static_cast<int>(digits->size()) - 1);
      for (Index c = 0; c < width; ++c)
        row[static_cast<std::size_t>(c)] =
            static_cast<float>(digits == nullptr ? random.integer(draw++, 0, 3) : digits->pixel(digit, c));
      is_good = has_exact_gates(row);
    }
    if (!is_good) return std::nullopt;
    input.values.insert(input.values.end(), row.begin(), row.end());
  }
  return input;
}

}  // namespace

ExactProblem make_exact_mixture(const Model& model, const Routing& routing, Index batch, std::uint64_t seed,
                                const Digits* digits) {
  ExactProblem problem;
  problem.model = model;
  problem.routing = routing;
  problem.routing.skew = 0;
  if (routing.aux_weight != 0)  // w E count / (k B²) is then the count
    problem.routing.aux_weight =
        static_cast<double>(routing.top_k * batch * batch) / static_cast<double>(model.num_experts);
  // Gates are quarters at least, so expert gradients, and weights after integer steps, are integers.
  problem.output_grad = integers({batch, model.width(model.num_layers)},
                                 CounterRandom(seed, "exact output gradient"), -2, 2, 4);
  const bool is_sparse = model.num_layers > 2 || model.model_dim > 16;
  for (Index e = 0; e < model.num_experts; ++e)
    for (Index l = 0; l < model.num_layers; ++l) {
      const std::string name = expert_layer_name(e, l);
      CounterRandom random(seed, "exact " + name);
      problem.weights[name] =
          is_sparse ? sparse_signs(model.shape(l), random) : integers(model.shape(l), random, -2, 2);
    }
  for (std::uint64_t attempt = 0; attempt < 256; ++attempt) {
    CounterRandom random(seed, fmt::format("exact routing {}", attempt));
    HostTensor router = tied_router(model, random);
    std::optional<HostTensor> input =
        input_for(router, routing.top_k, batch, CounterRandom(seed + attempt, "exact input"),
                  model.model_dim == Digits::pixels ? digits : nullptr);
    if (!input) continue;
    problem.weights[router_name()] = std::move(router);
    problem.input = std::move(*input);
    return problem;
  }
  throw Error(Code::internal, "exact mode: expected a router with exact gates among 256, given none");
}

std::map<std::string, HostTensor> solve_mixture(const ExactProblem& problem) {
  const Model& m = problem.model;
  const Matrix x(problem.input), dout(problem.output_grad), router(problem.weights.at(router_name()));
  const std::vector<Token> tokens = route(problem);
  std::map<std::string, HostTensor> results;
  Matrix out(x.rows, m.width(m.num_layers)), out_magnitude(out);
  Matrix dgates(x.rows, problem.routing.top_k);
  Matrix dx(x.rows, x.columns), dx_magnitude(dx);
  double out_unit = HUGE_VAL, dx_unit = HUGE_VAL;
  for (Index e = 0; e < m.num_experts; ++e) {
    const std::vector<Slot> slots = slots_of(e, tokens);
    const std::vector<Matrix> inputs = expert_forward(problem, e, rows_of(x, slots));
    const Matrix& y = inputs.back();
    const Matrix weighted = rows_of(dout, slots, &tokens);
    add_rows(y, slots, &tokens, out, out_magnitude);
    for (const Token& token : tokens)
      for (double gate : token.gates) out_unit = std::min(out_unit, y.unit() * unit_of(gate));
    dot_gates(dout, y, slots, dgates);
    const Matrix drows = expert_backward(problem, e, inputs, weighted, results);
    add_rows(drows, slots, nullptr, dx, dx_magnitude);
    dx_unit = std::min(dx_unit, drows.unit());
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
  require_sum(dx_magnitude, std::min(dx_unit, through_router.unit()));
  results["input_grad"] = dx.as_floats();
  return results;
}

RoutedCounts route_mixture(const ExactProblem& problem, int devices) {
  const std::vector<Token> tokens = route(problem);
  const auto batch = static_cast<Index>(tokens.size());
  const Index k = problem.routing.top_k, E = problem.model.num_experts;
  RoutedCounts counts{devices, k, E, std::vector<Index>(static_cast<std::size_t>(devices * k * E)), {}};
  counts.kept = counts.chosen;
  for (int d = 0; d < devices; ++d)
    for (Index t = part(batch, devices, d).begin; t < part(batch, devices, d).end; ++t)
      for (Index r = 0; r < k; ++r) {
        const Token& token = tokens[static_cast<std::size_t>(t)];
        const auto rank = static_cast<std::size_t>(r);
        const auto at = static_cast<std::size_t>((d * k + r) * E + token.chosen[rank]);
        ++counts.chosen[at];
        counts.kept[at] += token.is_kept[rank] ? 1 : 0;
      }
  return counts;
}

namespace {

/// Of the features of a live problem, the first 2N say what a token's type is. Types 0 to N-1, 2N tokens of
/// type s on device s, tie between expert 0 and their own device's second one; types N to 2N-1, one of each
/// on every device, tie between the second and the third one of device 0 to N-1. With 8 in the input, a logit
/// is 128 or 0.
HostTensor live_router(const Model& m, Index N) {
  HostTensor router{{m.model_dim, m.num_experts},
                    std::vector<float>(static_cast<std::size_t>(m.model_dim * m.num_experts))};
  auto prefer = [&](Index type, Index expert) {
    router.values[static_cast<std::size_t>(type * m.num_experts + expert)] = logit_step / 8;
  };
  for (Index d = 0; d < N; ++d) {
    prefer(d, 0);
    prefer(d, 3 * d + 1);
    prefer(N + d, 3 * d + 1);
    prefer(N + d, 3 * d + 2);
  }
  return router;
}

HostTensor live_input(Index batch, Index width, Index N) {
  HostTensor input = integers({batch, width}, CounterRandom(3, "live input"), 1, 2);
  for (Index t = 0; t < batch; ++t) {
    const Index device = t / (3 * N), i = t % (3 * N);
    const Index type = i < 2 * N ? device : i - N;
    for (Index c = 0; c < 2 * N; ++c)
      input.values[static_cast<std::size_t>(t * width + c)] = c == type ? 8.0F : 0.0F;
  }
  return input;
}

/// Layer 0 reads everything, and no expert as another; in later ones every row and column has two ones or
/// more.
HostTensor live_weights(const Model& m, Index expert, Index layer) {
  const Shape shape = m.shape(layer);
  HostTensor w = integers(shape, CounterRandom(3, "live " + expert_layer_name(expert, layer)), 1, 2);
  const Index period = std::min(shape[0], shape[1]);
  for (Index i = 0; i < num_elements(shape) && layer > 0; ++i) {
    const Index distance = (i / shape[1] - i % shape[1] + num_elements(shape)) % period;
    w.values[static_cast<std::size_t>(i)] = distance <= 1 ? 1.0F : 0.0F;
  }
  return w;
}

}  // namespace

ExactProblem make_live_mixture(Index num_layers, const Routing& routing, int devices) {
  const Index N = devices, E = 3 * N, batch = 3 * N * N;
  ExactProblem problem;
  problem.model = {num_layers, 3 * N, 2 * N, E};
  problem.routing = routing;
  problem.routing.capacity_factor = 1;  // k N choices: device 0 alone has 2N first ones for expert 0
  problem.routing.aux_weight = static_cast<double>(routing.top_k * batch * batch) / static_cast<double>(E);
  problem.input = live_input(batch, problem.model.model_dim, N);
  problem.output_grad =
      integers({batch, problem.model.width(num_layers)}, CounterRandom(3, "live output gradient"), 1, 2, 4);
  problem.weights[router_name()] = live_router(problem.model, N);
  for (Index e = 0; e < E; ++e)
    for (Index l = 0; l < num_layers; ++l)
      problem.weights[expert_layer_name(e, l)] = live_weights(problem.model, e, l);
  return problem;
}

}  // namespace shard
