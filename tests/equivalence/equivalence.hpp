#pragma once

/// Runs one step of an engine on a problem, and compares this device's part of every result with the expected one.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/engines/optimizer.hpp"
#include "engine/program/registry.hpp"
#include "engine/program/step/rows_of_step.hpp"
#include "engine/weights/checkpoint.hpp"
#include "tests/equivalence/networks.hpp"
#include "tests/equivalence/tested_options.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

struct Results {
  std::vector<OutputRows> output;
  Gradients gradients;  ///< with dL/dx, if wanted
  bool moves = false;   ///< RowsOfStep
};

inline Tensor rows_of(const HostTensor& t, Range rows) {
  return slice(Tensor::from_host(t.shape, t.values), 0, rows.begin, rows.end);
}

/// The part of a whole input that the engine takes on this device.
inline Tensor input_of(const ShardedEngine& engine, const HostTensor& input) {
  return rows_of(input, engine.input_rows(input.shape[0]));
}

/// forward_backward with this input and these output gradients.
inline Results run_step(ShardedEngine& engine, const HostTensor& input, const HostTensor& output_grad) {
  Results results;
  const Index before = moved_so_far();
  results.gradients =
      engine.forward_backward(input_of(engine, input), [&](const Tensor& out, Index first_row) {
        Range rows = {first_row, first_row + out.extent(0)};
        if (rows.end > output_grad.shape[0] || out.extent(1) != output_grad.shape[1])
          refuse(Code::argument, "loss", "rows of an output " + to_string(output_grad.shape),
                 to_string(out.shape()));
        results.output.push_back({first_row, {out.shape(), out.to_host()}});
        return rows_of(output_grad, rows);
      });
  results.moves = moved_so_far() > before;
  return results;
}

/// A variant with some of its options for tests, and a network that it accepts with them.
struct Case {
  const Variant& variant;
  Options options;
  std::shared_ptr<const Workload> network;
  Index batch;

  /// An engine with these weights. `of`: the network of the problem. Training computes no dL/dx, and the command
  /// `gradients` does, so both are tested.
  std::unique_ptr<ShardedEngine> engine(const std::map<std::string, HostTensor>& weights, const Workload& of,
                                        bool input_grad) const {
    std::unique_ptr<ShardedEngine> made = variant.make(group(), of, options);
    made->load_checkpoint(*host_checkpoint(weights, "test"));
    made->want_input_grad(input_grad);
    return made;
  }
  std::unique_ptr<ShardedEngine> engine(const ExactProblem& problem, bool input_grad = true) const {
    return engine(problem.weights, *problem.workload, input_grad);
  }
  ExactProblem exact_problem(std::uint64_t seed) const { return network->exact_problem(batch, seed); }
  /// The arguments of a closed form, on this device.
  Setting setting(bool input_grad, std::shared_ptr<const StepData> data) const {
    return {network.get(),       batch,           input_grad, group().num_devices(),
            group().device_id(), std::move(data), precision()};
  }
  /// The number of parameters times the number of rows: a measure of the work.
  Index size() const {
    Index elements = 0;
    for (const Parameter& p : network->parameters()) elements += num_elements(p.shape);
    return elements * batch;
  }
  std::string describe() const {
    return variant.name + ", " + network->describe() + ", batch " + std::to_string(batch) + " " +
           options.describe();
  }
};

/// An integer optimizer, with momentum or without, which does not change the parameters that must stay.
template <class AnyIntegerOptimizer>
AnyIntegerOptimizer integer_optimizer(const ExactProblem& problem) {
  return AnyIntegerOptimizer(
      [network = problem.workload](const std::string& name) { return network->must_stay(name); },
      problem.workload->gradient_unit());
}

/// The results that are expected of an engine that computes no dL/dx.
inline Solution without_input_grad(Solution expected) {
  expected.erase(Gradients::input_grad);
  return expected;
}

/// Compares all results of a step: "output", "input_grad" and each parameter's gradient.
inline std::vector<Comparison> compare_all(const Results& results, const Solution& expected,
                                           const Background& background = {}) {
  return shard::compare_all(group(), results.output, results.gradients, expected, background);
}

/// The first difference, or an empty text.
inline std::string first_difference(const std::vector<Comparison>& comparisons) {
  for (const Comparison& c : comparisons)
    if (!c.is_equal()) return c.first_difference;
  return "";
}

/// The first difference, with its likely cause, or an empty text. A collective.
inline std::string explained_difference(const ExactProblem& problem, const Results& results,
                                        const Solution& expected) {
  const bool differs = !first_difference(compare_all(results, expected)).empty();
  if (std::ranges::max(group().exchange("differs", differs ? 1 : 0)) == 0) return "";
  RowsOfStep rows(group(), problem, results.output, results.gradients, expected, results.moves);
  return first_difference(compare_all(results, expected, background_of(problem, rows, group())));
}

/// Whether the variant accepts a network with these options on this group.
inline Accepts accepted_by(const Variant& variant, const Options& options) {
  return [&](const Workload& network) { return variant.accepts(group().num_devices(), network, options); };
}

/// On more devices, each of a variant's options is tested with one network, since a step takes long.
inline constexpr int most_devices = 8;

/// The first network with this description, so that all variants share what `once` has computed for it.
inline std::shared_ptr<const Workload> only_one(const std::shared_ptr<const Workload>& network) {
  static std::map<std::pair<const WorkloadKind*, std::string>, std::shared_ptr<const Workload>> all;
  return all.try_emplace({&network->kind(), network->describe()}, network).first->second;
}

/// Whether all sums of its exact problem are exact in float32. Those of a pipeline of 16 stages may be too large.
inline bool is_exact(const TestCase& c) {
  static std::map<std::pair<std::shared_ptr<const Workload>, Index>, bool> all;
  const auto [found, is_new] = all.try_emplace({only_one(c.workload), c.batch}, true);
  try {
    if (is_new) solve(c.workload->exact_problem(c.batch, 3), group());
  } catch (const Error& error) {
    if (error.code() != Code::usage) throw;
    found->second = false;
  }
  return found->second;
}

/// The first exact one from the index `turn` on, cyclically. \throws Error if none is exact
inline TestCase exact_one_of(const std::vector<TestCase>& networks, std::size_t turn) {
  for (std::size_t i = 0; i < networks.size(); ++i)
    if (const TestCase& c = networks[(turn + i) % networks.size()]; is_exact(c)) return c;
  throw Error(Code::internal, "exact mode: expected a network with small sums, given none");
}

/// The cases of a variant, the smallest first: each of its options for tests with all networks of the workload
/// that it accepts, or, if these are too many, with one network. On processes, only the last options are tested.
inline std::vector<Case> cases(const Variant& variant) {
  std::multimap<Index, Case> by_size;
  std::size_t turn = 0;
  std::vector<Options> of_variant = tested_options(variant, group().num_devices());
  if (on_processes() && !of_variant.empty()) of_variant = {of_variant.back()};
  const bool is_few = of_variant.size() <= 3 || group().num_devices() <= (with_all() ? 4 : 3);
  const bool is_each_with_each = is_few && !on_processes() && group().num_devices() <= most_devices;
  for (const Options& options : of_variant) {
    std::vector<TestCase> networks = cases_of(*variant.workload, accepted_by(variant, options));
    if (!is_each_with_each) networks = {exact_one_of(networks, turn++)};
    std::set<std::pair<std::string, Index>> described;
    for (const TestCase& c : networks) {
      if (!described.emplace(c.workload->describe(), c.batch).second)
        throw Error(Code::internal,
                    c.workload->describe() + ": expected another description of another network");
      const Case made{variant, options, only_one(c.workload), c.batch};
      by_size.emplace(made.size(), made);
    }
  }
  std::vector<Case> all;
  for (const auto& [size, made] : by_size) all.push_back(made);
  return all;
}

/// The variants of the chapter under test, or of all chapters.
inline std::vector<std::reference_wrapper<const Variant>> variants_under_test() {
  std::vector<std::reference_wrapper<const Variant>> all;
  const std::string& wanted = chapter_under_test();
  if (!wanted.empty()) {
    const Chapter& chapter = find_chapter(wanted);
    all.assign(chapter.variants.begin(), chapter.variants.end());
    return all;
  }
  for (const Chapter& chapter : chapters())
    all.insert(all.end(), chapter.variants.begin(), chapter.variants.end());
  return all;
}

/// Those that run on this number of devices. (Some need a square number, for example.)
inline std::vector<std::reference_wrapper<const Variant>> variants_here() {
  auto all = variants_under_test();
  std::erase_if(all, [](const Variant& v) { return tested_options(v, group().num_devices()).empty(); });
  return all;
}

/// The workload's case in which rows do not depend on one another, with the last options.
inline Case streamed_case(const Variant& variant) {
  const Options options = tested_options(variant, group().num_devices()).back();
  const TestCase c = streamed_case_of(*variant.workload, accepted_by(variant, options));
  return {variant, options, c.workload, c.batch};
}

}  // namespace shard::testing
