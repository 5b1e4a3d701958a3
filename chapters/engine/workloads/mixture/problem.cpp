#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "engine/engines/sharded_engine.hpp"
#include "engine/proof/exact.hpp"
#include "engine/workloads/exact_values.hpp"
#include "engine/workloads/mixture/mixture.hpp"
#include "engine/workloads/mlp/mlp.hpp"

namespace shard {

namespace {

using exact::Matrix;
using exact::product;
using exact::require_exact;
using exact::unit_of;

constexpr float logit_step = 128;  // exp(-128) is 0 in float32

/// The routing of one token.
struct ExactToken {
  std::vector<double> probabilities{};  ///< of each expert
  std::vector<Index> chosen{};          ///< k of them
  std::vector<double> gates{};          ///< k
  std::vector<bool> is_kept{};          ///< k
};

/// The choice of one token by its logits; nothing if its gates are not exact.
std::optional<ExactToken> exact_choice(const std::vector<double>& logits, Index top_k) {
  const double largest = *std::ranges::max_element(logits);
  const auto ties = std::ranges::count(logits, largest);
  const Index chosen_ties = std::min<Index>(ties, top_k);
  for (double z : logits)
    if (z != largest && largest - z < double{logit_step}) return std::nullopt;
  auto is_power_of_two = [](Index n) { return std::has_single_bit(static_cast<std::uint64_t>(n)); };
  if (!is_power_of_two(ties) || ties > 8 || !is_power_of_two(chosen_ties)) return std::nullopt;
  ExactToken token;
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

/// Marks the choices that find a slot: by rank first, then by token.
void keep_first(std::vector<ExactToken>& tokens, const RoutingRule& rule, Index experts) {
  const Index capacity = rule.capacity(static_cast<Index>(tokens.size()), experts);
  std::vector<Index> taken(static_cast<std::size_t>(experts));
  for (std::size_t r = 0; r < static_cast<std::size_t>(rule.top_k); ++r)
    for (ExactToken& token : tokens)
      token.is_kept.push_back(taken[static_cast<std::size_t>(token.chosen[r])]++ < capacity);
}

/// The counts of a batch that is divided over this number of devices.
RoutedCounts counted(const std::vector<ExactToken>& tokens, const Mixture& mixture, int devices) {
  const auto batch = static_cast<Index>(tokens.size());
  const Index k = mixture.rule().top_k, E = mixture.model().num_experts;
  RoutedCounts counts{devices, k, E, std::vector<Index>(static_cast<std::size_t>(devices * k * E)), {}};
  counts.kept = counts.chosen;
  for (int d = 0; d < devices; ++d)
    for (Index t = part(batch, devices, d).begin; t < part(batch, devices, d).end; ++t)
      for (Index r = 0; r < k; ++r) {
        const ExactToken& token = tokens[static_cast<std::size_t>(t)];
        const auto rank = static_cast<std::size_t>(r);
        const auto at = static_cast<std::size_t>((d * k + r) * E + token.chosen[rank]);
        ++counts.chosen[at];
        counts.kept[at] += token.is_kept[rank] ? 1 : 0;
      }
  return counts;
}

/// The choices of every token. Slots are given by rank first, then by token. \throws Error internal when a
/// token's gates are not exact
std::vector<ExactToken> exact_choices(const ExactProblem& problem) {
  const MixtureModel& m = as_mixture(*problem.workload).model();
  const RoutingRule& rule = as_mixture(*problem.workload).rule();
  const Matrix logits = product(Matrix(problem.input), Matrix(problem.weights.at(router_name())));
  std::vector<ExactToken> tokens;
  for (Index t = 0; t < logits.rows; ++t) {
    auto row = logits.values.begin() + t * m.num_experts;
    std::optional<ExactToken> token = exact_choice({row, row + m.num_experts}, rule.top_k);
    if (!token) throw Error(Code::internal, "exact mode: expected exact gates, given token {}", t);
    tokens.push_back(std::move(*token));
  }
  keep_first(tokens, rule, m.num_experts);
  return tokens;
}

/// A router with elements −128, 0 or 128. Experts form groups of 1, 2, 4, 1, ... The experts of a group have
/// equal columns, so their logits are equal.
HostTensor tied_router(const MixtureModel& m, const CounterRandom& random) {
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

/// Random rows with exact gates. Of several rows, the last is all zeros if its gates are exact: there, every
/// ReLU has its kink. Nothing if no rows are found.
std::optional<HostTensor> input_for(const HostTensor& router, Index top_k, Index batch,
                                    const CounterRandom& random, const Digits* digits) {
  const Index width = router.shape[0];
  auto has_exact_gates = [&](const std::vector<float>& row) {
    const Matrix logits = product(Matrix({{1, width}, row}), Matrix(router));
    return exact_choice(logits.values, top_k).has_value();
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

ExactProblem Mixture::exact_problem(Index batch, std::uint64_t seed) const {
  const MixtureModel& model = model_;
  exact::require_hidden_dim(model.hidden_dim, Index{1} << 18);
  const Digits* digits = digits_of_width(model.model_dim);
  RoutingRule rule = rule_;
  rule.skew = 0;
  if (rule.aux_weight != 0)  // w E count / (k B²) is then count
    rule.aux_weight =
        static_cast<double>(rule.top_k * batch * batch) / static_cast<double>(model.num_experts);
  ExactProblem problem;
  problem.workload = std::make_shared<Mixture>(model, rule);
  // Gates are at least 1/4, so experts' gradients, and weights after integer steps, are integers.
  problem.output_grad = exact::integers({batch, model.width(model.num_layers)},
                                        CounterRandom(seed, "exact output gradient"), -2, 2, 4);
  const bool is_sparse = model.num_layers > 2 || model.model_dim > 16;
  for (Index e = 0; e < model.num_experts; ++e)
    for (Index l = 0; l < model.num_layers; ++l) {
      const std::string name = expert_layer_name(e, l);
      CounterRandom random(seed, "exact " + name);
      problem.weights[name] = is_sparse ? exact::sparse_signs(model.shape(l), random)
                                        : exact::integers(model.shape(l), random, -2, 2);
    }
  for (std::uint64_t attempt = 0; attempt < 256; ++attempt) {
    CounterRandom random(seed, fmt::format("exact routing {}", attempt));
    HostTensor router = tied_router(model, random);
    std::optional<HostTensor> input =
        input_for(router, rule.top_k, batch, CounterRandom(seed + attempt, "exact input"), digits);
    if (!input) continue;
    problem.weights[router_name()] = std::move(router);
    problem.input = std::move(*input);
    return problem;
  }
  throw Error(Code::internal, "exact mode: expected a router with exact gates among 256, given none");
}

namespace {

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
    // The addends of the difference are multiples of unit_p · unit_d.
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
/// their sum. `balances`: how often the balancing loss counts, for the tokens in `counted`, or for all if it is empty.
Matrix logits_backward(const Mixture& mixture, const std::vector<ExactToken>& tokens, const Matrix& dgates,
                       double balances, const std::vector<Range>& counted) {
  std::vector<double> of_expert = balance(mixture, tokens);
  for (double& value : of_expert) value *= balances;
  const std::vector<double> of_none(of_expert.size());
  Matrix dlogits(0, mixture.model().num_experts);
  for (const ExactToken& token : tokens) {
    const bool counts =
        counted.empty() || std::ranges::any_of(counted, [row = dlogits.rows](const Range& rows) {
          return rows.begin <= row && row < rows.end;
        });
    std::vector<double> dp = counts ? of_expert : of_none;
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

std::vector<Cause> Mixture::mistakes() const {
  std::vector<Cause> all = {Cause::mask_forgotten, Cause::relus_forgotten, Cause::gates_forgotten};
  if (rule_.aux_weight != 0) all.insert(all.end(), {Cause::balance_forgotten, Cause::balance_n_times});
  return all;
}

/// Token by token from the definitions, in exact arithmetic. Shares no code with routers and engines.
Solution Mixture::solve_with(Cause mistake, const ExactProblem& problem, Communicator& group) const {
  const Matrix x(problem.input), dout(problem.output_grad), router(problem.weights.at(router_name()));
  const std::vector<ExactToken> tokens = exact_choices(problem);
  const Slots slots(tokens, model_.num_experts);
  Solution results;
  const Answers answers(problem, slots, product(slots.tokens, x), product(slots.gates, dout), mistake, group,
                        results);
  const Matrix& factors = mistake == Cause::gates_forgotten ? slots.tokens : slots.gates;
  results["output"] = product(factors.transposed(), answers.y).as_floats();

  Matrix dgates(x.rows, rule_.top_k);  // of each choice: its token's row of dout times the answer
  for (Index i = 0; i < answers.y.rows; ++i) {
    const auto [token, rank] = slots.choices[static_cast<std::size_t>(i)];
    const Matrix answer = rows_of(answers.y, {i, i + 1}).transposed();
    dgates.at(token, rank) = product(rows_of(dout, {token, token + 1}), answer).at(0, 0);
  }
  const double balances = mistake == Cause::balance_forgotten ? 0
                          : mistake == Cause::balance_n_times ? group.num_devices()
                                                              : 1;
  const Matrix dlogits = logits_backward(*this, tokens, dgates, balances, problem.counted);
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

std::shared_ptr<const StepData> Mixture::choices(const ExactProblem& problem, int devices) const {
  return std::make_shared<RoutedStep>(counted(exact_choices(problem), *this, devices));
}

}  // namespace shard
