/// Chapter 07: every claim about a layer, on every number of devices; and whole layers against finite
/// differences.

#include <algorithm>

#include "engine/workloads/random.hpp"
#include "tests/equivalence/layer_claims.hpp"

namespace shard::testing {

const testing::RunsOn runs_on({1, 2, 3, 4, 5, 8});

using namespace layer_cuts;

TEST_CASE("layers: right cuts give the whole layer's bits and send what their form says; naive ones do not") {
  for_each_claim(Arithmetic::exact(), [](const LayerCase& layer, const Claim& claim, const auto& whole) {
    const Finding finding = find(layer, claim, whole, group(), Arithmetic::exact());
    INFO(finding.difference);
    CHECK(finding.is_as_claimed);
    if (claim.verdict == Verdict::differs && devices() > 1) CHECK(finding.relative > 0.01);
  });
}

TEST_CASE("layers: with real numbers right cuts differ by rounding alone") {
  // Results are sums of fewer than 128 products, behind at most four functions: 512 roundings of 2^-24 each.
  constexpr double bound = 512 * 0x1p-24;
  for_each_claim(Arithmetic::real(), [=](const LayerCase& layer, const Claim& claim, const auto& whole) {
    const Finding finding = find(layer, claim, whole, group(), Arithmetic::real());
    INFO(finding.difference);
    if (claim.verdict != Verdict::differs) CHECK(finding.relative <= bound);
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

/// Σ output · output_grad, whose gradients are those of the backward pass.
double objective(const LayerCase& layer, Communicator& alone) {
  const layer_cuts::Results results = results_of(layer, alone, Arithmetic::real());
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
    worst = std::max(worst, std::abs(slope - double{gradient.values[i]}));
    largest = std::max(largest, std::abs(double{gradient.values[i]}));
  }
  return worst / largest;
}

}  // namespace

TEST_CASE("layers: the gradients of whole layers are those of finite differences") {
  if (devices() > 1) return;
  for (LayerCase layer : all_layers()) {
    layer = with_real_numbers(std::move(layer));
    const layer_cuts::Results results = results_of(layer, group(), Arithmetic::real());
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

TEST_CASE("layers: attention is causal: no output depends on a later token") {
  if (devices() > 1) return;
  for (LayerCase layer : {multi_head_attention(), grouped_query_attention()}) {
    const Index sequences = layer.input.shape[0], length = layer.input.shape[1], width = layer.input.shape[2];
    const HostTensor before = results_of(layer, group(), Arithmetic::real()).at("output");
    for (Index s = 0; s < sequences; ++s) {
      const Index last = ((s + 1) * length - 1) * width;
      for (Index c = 0; c < width; ++c) layer.input.values[static_cast<std::size_t>(last + c)] *= 2;
    }
    const HostTensor after = results_of(layer, group(), Arithmetic::real()).at("output");
    for (std::size_t i = 0; i < before.values.size(); ++i) {
      const bool is_last = static_cast<Index>(i) / width % length == length - 1;
      INFO(layer.name << ", element " << i);
      CHECK((before.values[i] == after.values[i]) == !is_last);
    }
  }
}

}  // namespace shard::testing
