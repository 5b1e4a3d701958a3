/// Chapter 07: every claim about a layer, on every number of devices; and whole layers against their
/// definitions, and against finite differences.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/basics/larger.hpp"
#include "engine/workloads/random.hpp"
#include "tests/equivalence/layer_claims.hpp"

namespace shard::testing {

RUNS_ON(.in_one_process = {1, 2, 3, 4, 5, 8}, .with_all = {6, 7}, .processes = {3}, .on_cuda = {3});

using namespace layer_cuts;

// Results are sums of fewer than 128 products, behind at most four functions: 512 roundings of 2^-24 each.
constexpr double rounding_bound = 512 * 0x1p-24;

TEST_CASE("layers: right cuts give the whole layer's bits and send what their form says; naive ones do not") {
  for_each_claim(grid(), [](const LayerCase& layer, const Claim& claim, const auto& whole) {
    const Finding finding = find(layer, claim, whole, group(), grid());
    INFO(finding.difference);
    CHECK(finding.is_as_claimed);
    if (claim.verdict == Verdict::differs && devices() > 1) CHECK(finding.relative > 0.01);
  });
}

TEST_CASE("layers: with real numbers right cuts differ by rounding alone") {
  for_each_claim(real_numbers(), [](const LayerCase& layer, const Claim& claim, const auto& whole) {
    const Finding finding = find(layer, claim, whole, group(), real_numbers());
    INFO(finding.difference);
    if (claim.verdict != Verdict::differs) CHECK(finding.relative <= rounding_bound);
    if (claim.verdict == Verdict::differs && devices() > 1) CHECK(finding.relative > 0.01);
  });
}

namespace {

/// The case with other numbers. No two of the input are near one another, so that no maximum changes.
LayerCase with_real_numbers(LayerCase layer) {
  auto fill = [](const std::string& name, HostTensor& t) {
    const CounterRandom random(11, name);
    for (std::size_t i = 0; i < t.values.size(); ++i) t.values[i] = random.normal(i) / 2;
  };
  const std::size_t count = layer.input.values.size();
  for (std::size_t i = 0; i < count && layer.name != "embedding"; ++i)  // whose input are tokens
    layer.input.values[i] = 4 * static_cast<float>(i * 37 % count) / static_cast<float>(count) - 2;
  for (auto& [name, weight] : layer.weights)
    if (name != "labels") fill(name, weight);
  return layer;
}

/// Σ output · output_grad. The backward pass computes its gradients.
double objective(const LayerCase& layer, Communicator& alone) {
  const layer_cuts::Results results = results_of(layer, alone, real_numbers());
  double sum = 0;
  for (std::size_t i = 0; i < layer.output_grad.values.size(); ++i)
    sum += double{results.at("output").values[i]} * double{layer.output_grad.values[i]};
  return sum;
}

/// The largest difference of the gradient and central differences, relative to its largest element.
double worst_difference(LayerCase& layer, HostTensor& of, const HostTensor& gradient, Communicator& alone) {
  constexpr float step = 0x1p-6F;
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < of.values.size(); ++i) {
    const float value = of.values[i];
    of.values[i] = value + step;
    const double above = objective(layer, alone);
    of.values[i] = value - step;
    const double slope = (above - objective(layer, alone)) / (2 * double{step});
    of.values[i] = value;
    worst = larger(worst, std::abs(slope - double{gradient.values[i]}));
    largest = larger(largest, std::abs(double{gradient.values[i]}));
  }
  return worst / largest;
}

}  // namespace

TEST_CASE("layers: the gradients of whole layers are those of finite differences") {
  if (devices() > 1) return;
  for (LayerCase layer : all_layers()) {
    layer = with_real_numbers(std::move(layer));
    const layer_cuts::Results results = results_of(layer, group(), real_numbers());
    INFO(layer.name);
    // The step's square, 2^-12, times a third derivative over a gradient: below 1 in these layers.
    constexpr double bound = 0.01;
    if (results.contains("input_grad"))
      CHECK(worst_difference(layer, layer.input, results.at("input_grad"), group()) < bound);
    for (auto& [name, weight] : layer.weights) {
      INFO(name);
      if (name != "labels") CHECK(worst_difference(layer, weight, results.at(name), group()) < bound);
    }
  }
}

namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

/// A tensor's last axis, as rows.
Rows rows_of(const HostTensor& t) {
  const auto width = static_cast<std::size_t>(t.shape.back());
  Rows rows;
  for (std::size_t i = 0; i < t.values.size(); i += width)
    rows.emplace_back(t.values.begin() + static_cast<std::ptrdiff_t>(i),
                      t.values.begin() + static_cast<std::ptrdiff_t>(i + width));
  return rows;
}
Rows turned(const Rows& a) {
  Rows t(a[0].size(), Row(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}
Row times(const Row& x, const Rows& w) {
  Row y(w[0].size());
  for (std::size_t k = 0; k < x.size(); ++k)
    for (std::size_t j = 0; j < y.size(); ++j) y[j] += x[k] * w[k][j];
  return y;
}
template <class F>
Rows each_row(Rows rows, const F& f) {
  for (Row& row : rows) row = f(row);
  return rows;
}
/// (x − mean) / √(variance + ε), or x / √(mean of x² + ε).
Row normalised(Row x, bool is_centred) {
  const auto n = static_cast<double>(x.size());
  const double mean = is_centred ? std::accumulate(x.begin(), x.end(), 0.0) / n : 0;
  double variance = 0;
  for (double v : x) variance += (v - mean) * (v - mean) / n;
  for (double& v : x) v = (v - mean) / std::sqrt(variance + double{norm_epsilon});
  return x;
}
double log_of_sum(const Row& z) {
  double sum = 0;
  for (double v : z) sum += std::exp(v);
  return std::log(sum);
}

Rows linear_rows(const LayerCase& c) {
  return each_row(rows_of(c.input),
                  [w = rows_of(c.weights.at("weights"))](const Row& x) { return times(x, w); });
}
Rows residual_rows(const LayerCase& c) {
  const Rows w0 = rows_of(c.weights.at("w0")), w1 = rows_of(c.weights.at("w1"));
  return each_row(rows_of(c.input), [&](const Row& x) {
    Row h = times(x, w0);
    for (double& v : h) v = std::max(v, 0.0);
    Row y = times(h, w1);
    for (std::size_t j = 0; j < y.size(); ++j) y[j] += x[j];
    return y;
  });
}
/// RMSNorm, LayerNorm and BatchNorm: the norm, times w, plus b where there is one.
Rows norm_rows(const LayerCase& c) {
  const bool over_batch = c.name == "BatchNorm";
  Rows x = over_batch ? turned(rows_of(c.input)) : rows_of(c.input);
  x = each_row(std::move(x), [&](const Row& row) { return normalised(row, c.name != "RMSNorm"); });
  if (over_batch) x = turned(x);
  return each_row(std::move(x), [&](Row row) {
    for (std::size_t j = 0; j < row.size(); ++j) {
      row[j] *= double{c.weights.at("weights").values[j]};
      if (c.weights.contains("bias")) row[j] += double{c.weights.at("bias").values[j]};
    }
    return row;
  });
}
Rows embedding_rows(const LayerCase& c) {
  const Rows table = rows_of(c.weights.at("table"));
  return each_row(rows_of(c.input),
                  [&](const Row& token) { return table[static_cast<std::size_t>(token[0])]; });
}
Rows cross_entropy_rows(const LayerCase& c) {
  double loss = 0;
  const Rows z = rows_of(c.input);
  for (std::size_t i = 0; i < z.size(); ++i)
    loss += log_of_sum(z[i]) - z[i][static_cast<std::size_t>(c.weights.at("labels").values[i])];
  return {{loss}};
}
/// Causal, with heads of four features; neighbouring query heads share a key-value head.
Rows attention_rows(const LayerCase& c) {
  auto projected = [&](const char* w) {
    return each_row(rows_of(c.input), [m = rows_of(c.weights.at(w))](const Row& x) { return times(x, m); });
  };
  const Rows q = projected("wq"), k = projected("wk"), v = projected("wv");
  const std::size_t length = static_cast<std::size_t>(c.input.shape[1]), shared = q[0].size() / k[0].size();
  Rows out(q.size(), Row(q[0].size()));
  for (std::size_t t = 0; t < q.size(); ++t)
    for (std::size_t h = 0; h < q[0].size() / 4; ++h) {
      const std::size_t g = h / shared;
      Row scores;
      for (std::size_t s = t / length * length; s <= t; ++s) {
        double score = 0;
        for (std::size_t j = 0; j < 4; ++j) score += q[t][4 * h + j] * k[s][4 * g + j] / 2;  // √4
        scores.push_back(score);
      }
      for (std::size_t i = 0; i < scores.size(); ++i)
        for (std::size_t j = 0; j < 4; ++j)
          out[t][4 * h + j] +=
              std::exp(scores[i] - log_of_sum(scores)) * v[t / length * length + i][4 * g + j];
    }
  return each_row(out, [wo = rows_of(c.weights.at("wo"))](const Row& o) { return times(o, wo); });
}
Rows pooling_rows(const LayerCase& c) {
  const Rows x = rows_of(c.input);
  Rows out = x;
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < x[0].size(); ++j) {
      Row window = {x[i][j]};
      if (i > 0) window.push_back(x[i - 1][j]);
      if (i + 1 < x.size()) window.push_back(x[i + 1][j]);
      out[i][j] = c.name == "max pooling" ? std::ranges::max(window)
                                          : std::accumulate(window.begin(), window.end(), 0.0) /
                                                static_cast<double>(window.size());
    }
  return out;
}
Rows lstm_rows(const LayerCase& c) {
  const Rows x = rows_of(c.input);
  const auto sequences = static_cast<std::size_t>(c.input.shape[1]);
  const auto width = static_cast<std::size_t>(c.weights.at("u_i").shape[0]);
  Rows h(sequences, Row(width)), cells = h, out;
  for (std::size_t t = 0; t < x.size(); ++t) {
    Row &state = h[t % sequences], &cell = cells[t % sequences];
    std::map<char, Row> z;
    for (const char gate : {'i', 'f', 'g', 'o'}) {
      const Row of_x = times(x[t], rows_of(c.weights.at(std::string("w_") + gate)));
      z[gate] = times(state, rows_of(c.weights.at(std::string("u_") + gate)));
      for (std::size_t j = 0; j < z[gate].size(); ++j) z[gate][j] += of_x[j];
    }
    auto sigma = [](double v) { return 1 / (1 + std::exp(-v)); };
    for (std::size_t j = 0; j < state.size(); ++j) {
      cell[j] = sigma(z['f'][j]) * cell[j] + sigma(z['i'][j]) * std::tanh(z['g'][j]);
      state[j] = sigma(z['o'][j]) * std::tanh(cell[j]);
    }
    out.push_back(state);
  }
  return out;
}

/// The definitions, by the layer's name. Dropout has a test of its own.
const std::map<std::string, Rows (*)(const LayerCase&)> definitions = {
    {"linear", linear_rows},
    {"residual block", residual_rows},
    {"RMSNorm", norm_rows},
    {"LayerNorm", norm_rows},
    {"BatchNorm", norm_rows},
    {"embedding", embedding_rows},
    {"cross entropy", cross_entropy_rows},
    {"multi-head attention", attention_rows},
    {"grouped-query attention", attention_rows},
    {"max pooling", pooling_rows},
    {"average pooling", pooling_rows},
    {"LSTM", lstm_rows}};

}  // namespace

TEST_CASE("layers: whole layers compute their definitions, in float64") {
  if (devices() > 1) return;
  for (LayerCase layer : all_layers()) {
    layer = with_real_numbers(std::move(layer));
    const HostTensor output = results_of(layer, group(), real_numbers()).at("output");
    INFO(layer.name);
    if (layer.name == "dropout") {
      for (std::size_t i = 0; i < output.values.size(); ++i)
        CHECK((output.values[i] == 0 || output.values[i] == 2 * layer.input.values[i]));
      continue;
    }
    const Rows given = rows_of(output), expected = definitions.at(layer.name)(layer);
    double worst = 0, largest = 0;
    REQUIRE(given.size() == expected.size());
    for (std::size_t i = 0; i < given.size(); ++i)
      for (std::size_t j = 0; j < given[i].size(); ++j) {
        worst = larger(worst, std::abs(given[i][j] - expected[i][j]));
        largest = larger(largest, std::abs(expected[i][j]));
      }
    CHECK(worst <= rounding_bound * largest);
  }
}

TEST_CASE("layers: attention is causal: no output depends on a later token") {
  if (devices() > 1) return;
  for (LayerCase layer : {multi_head_attention(), grouped_query_attention()}) {
    const Index sequences = layer.input.shape[0], length = layer.input.shape[1], width = layer.input.shape[2];
    const HostTensor before = results_of(layer, group(), real_numbers()).at("output");
    for (Index s = 0; s < sequences; ++s) {
      const Index last = ((s + 1) * length - 1) * width;
      for (Index c = 0; c < width; ++c) layer.input.values[static_cast<std::size_t>(last + c)] *= 2;
    }
    const HostTensor after = results_of(layer, group(), real_numbers()).at("output");
    for (std::size_t i = 0; i < before.values.size(); ++i) {
      const bool is_last = static_cast<Index>(i) / width % length == length - 1;
      INFO(layer.name << ", element " << i);
      CHECK((before.values[i] == after.values[i]) == !is_last);
    }
  }
}

}  // namespace shard::testing
