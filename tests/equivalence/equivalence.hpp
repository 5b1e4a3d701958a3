#pragma once

/// What the equivalence tests share: run one step of an engine on a problem, and hold every result against
/// what was expected, on the slice that this device owns.

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chapter.hpp"  // of the chapter under test: the build says which
#include "engine/optimizer.hpp"
#include "engine/proof/compare.hpp"
#include "engine/proof/exact.hpp"

namespace shard::testing {

/// What a step produced on this device.
struct Results {
  struct Piece {
    Index first_row;
    HostTensor rows;
  };
  std::vector<Piece> output;  ///< as the loss saw it
  Gradients gradients;        ///< with dL/dx
};

/// Rows of a host tensor, as a device tensor.
inline Tensor rows_of(const HostTensor& t, Range rows) {
  return slice(Tensor::from_host(t.shape, t.values), 0, rows.begin, rows.end);
}

/// The part of a whole input that an engine is given on this device.
inline Tensor input_of(const ShardedEngine& engine, const HostTensor& input) {
  return rows_of(input, engine.input_rows(input.shape[0]));
}

/// forward_backward with this input and these output gradients.
inline Results run_step(ShardedEngine& engine, const HostTensor& input, const HostTensor& output_grad) {
  Results results;
  results.gradients =
      engine.forward_backward(input_of(engine, input), [&](const Tensor& out, Index first_row) {
        Range rows = {first_row, first_row + out.extent(0)};
        if (rows.end > output_grad.shape[0] || out.extent(1) != output_grad.shape[1])
          refuse(Code::argument, "loss", "rows of an output " + to_string(output_grad.shape),
                 to_string(out.shape()));
        results.output.push_back({first_row, {out.shape(), out.to_host()}});
        return rows_of(output_grad, rows);
      });
  return results;
}

/// An engine with these weights that also computes dL/dx, told to route as the problem says.
inline std::unique_ptr<ShardedEngine> make_engine(const Variant& variant, const EngineOptions& options,
                                                  const std::map<std::string, HostTensor>& weights) {
  std::unique_ptr<ShardedEngine> engine = variant.make(options);
  engine->load_checkpoint(*host_checkpoint(weights, "test"));
  engine->want_input_grad(true);
  return engine;
}
inline std::unique_ptr<ShardedEngine> make_engine(const Variant& variant, EngineOptions options,
                                                  const ExactProblem& problem) {
  options.routing = problem.routing;
  return make_engine(variant, options, problem.weights);
}

/// Comparisons of everything a step produced with `expected`: "output", "input_grad" and each parameter.
inline std::vector<Comparison> compare_all(const Results& results,
                                           const std::map<std::string, HostTensor>& expected) {
  std::vector<Comparison> all;
  for (const auto& [first_row, rows] : results.output) {
    Tensor want = rows_of(expected.at("output"), {first_row, first_row + rows.shape[0]});
    all.push_back(compare("output", rows, {want.shape(), want.to_host()}, 0, first_row));
  }
  for (const auto& [name, wanted] : expected)
    if (name != "output") all.push_back(compare(name, results.gradients.at(name), wanted));
  return all;
}

/// The first difference of all, or nothing.
inline std::string first_difference(const std::vector<Comparison>& comparisons) {
  for (const Comparison& c : comparisons)
    if (!c.is_equal()) return c.first_difference;
  return "";
}

/// Shapes that no cut divides evenly, with more devices than rows or columns among them.
struct Case {
  Model model;
  Index batch;
  EngineOptions options;

  /// What a closed form is told of this case on this device.
  Setting setting(bool input_grad) const {
    return {options, model, batch, input_grad, world().num_devices(), world().device_id(), {}};
  }
  /// The chapter's exact problem of this case.
  ExactProblem exact_problem(std::uint64_t seed) const {
    return this_chapter().network.exact_problem(model, options.routing, batch, seed, nullptr);
  }
};

/// The options a variant is tested with: pieces that are ragged, buckets of one gradient, of some and of all.
inline std::vector<EngineOptions> options_of(const Variant& variant) {
  EngineOptions two_stages{2};
  two_stages.virtual_stages = 2;
  EngineOptions three_stages{5};
  three_stages.virtual_stages = 3;
  if (variant.has_virtual_stages) return {two_stages, three_stages};
  if (variant.has_stages) return {{1}, {2}, {5}};
  if (variant.has_micro_batches) return {{}, {3}};
  if (variant.has_buckets) return {{1, 1}, {1, 300}, {}};
  return {{}};
}

/// Mixtures: more and fewer experts than devices and than tokens, with and without bounds on what an expert
/// takes, some so tight that tokens are dropped by all, with and without the balancing loss and skew (which
/// exact problems set to 0).
inline std::vector<Case> mixture_cases(const Variant& variant) {
  struct Mixture {
    Index num_experts;
    Routing routing;
  };
  std::vector<Mixture> mixtures;
  if (variant.top_k == 1)
    mixtures = {
        {7, {1, 1.25, 0.01, 0}}, {3, {1, std::nullopt, 0, 0}}, {4, {1, 0.5, 0.3, 0.5}}, {1, {1, 1, 0, 0}}};
  else
    mixtures = {{7, {2, 1.25, 0.01, 0}}, {3, {3, std::nullopt, 0, 0}}, {5, {2, 0.5, 0.3, 0.5}}};
  std::vector<Case> all;
  for (Index layers : {1, 2, 3, 6})
    for (auto [batch, dim, hidden] : {std::array<Index, 3>{9, 5, 7}, {1, 3, 2}, {13, 4, 11}, {16, 8, 16}})
      for (const auto& [num_experts, routing] : mixtures) {
        EngineOptions options;
        options.routing = routing;
        all.push_back({{layers, dim, hidden, num_experts}, batch, options});
      }
  return all;
}

/// Depths a variant is tested with: odd and even ones, and one and some more than it needs.
inline std::vector<Index> layers_of(const Variant& variant, const EngineOptions& options) {
  const Index fewest = variant.min_layers(world().num_devices(), options);
  if (fewest <= 1) return {1, 2, 3, 6};
  return {fewest, fewest + 1, fewest + 3};
}

/// One uneven case, with the last of the options.
inline Case one_case(const Variant& variant) {
  EngineOptions options = options_of(variant).back();
  if (variant.top_k > 0) {  // no expert is ever full, so that rows do not depend on others beside them
    options.routing = {variant.top_k, std::nullopt, 0.01, 0};
    return {{3, 5, 7, 4}, 11, options};
  }
  return {{std::max<Index>(3, variant.min_layers(world().num_devices(), options) + 1), 5, 7}, 11, options};
}

/// All that a variant is tested on.
inline std::vector<Case> cases(const Variant& variant) {
  if (this_chapter().network.has_experts) return mixture_cases(variant);
  std::vector<Case> all;
  for (const EngineOptions& options : options_of(variant))
    for (Index layers : layers_of(variant, options))
      for (auto [batch, dim, hidden] :
           {std::array<Index, 3>{9, 5, 7}, {1, 3, 2}, {7, 2, 2}, {13, 4, 11}, {16, 8, 16}})
        all.push_back({{layers, dim, hidden}, batch, options});
  return all;
}

}  // namespace shard::testing
