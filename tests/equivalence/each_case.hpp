#pragma once

/// Calls a test for each variant and network of a chapter, and has the expected results of some steps.

#include "tests/equivalence/equivalence.hpp"
#include "tests/harness/catch.hpp"

namespace shard::testing {

/// make(case), computed once for each network and batch: all variants and numbers of devices share the result.
template <class Make>
const auto& once(const Case& c, const Make& make) {
  using Made = std::remove_const_t<decltype(make(c))>;
  static std::map<std::pair<std::shared_ptr<const Workload>, Index>, Made> all;
  const auto key = std::pair(c.network, c.batch);
  auto found = all.find(key);
  if (found == all.end()) found = all.emplace(key, make(c)).first;
  return found->second;
}

/// Calls check(case) for each variant's cases, the smallest first. With `--brief`, ends after a case that fails.
/// On a part of a larger group, does nothing unless `also_in_parts`.
template <class Check>
void for_each_case(const Check& check, bool also_in_parts = with_all()) {
  const bool is_part = id(devices() - 1) != devices() - 1;
  if (is_part && !also_in_parts) return;
  for (const Variant& variant : variants_under_test())
    for (const Case& c : cases(variant)) {
      CAPTURE(c.describe());
      check(c);
      if (is_to_end()) return;
    }
}

/// Fails with the first difference: "w on device 1 at (0, 0): expected 4, given 1: ...".
inline void check_none(const std::string& difference) {
  if (!difference.empty()) FAIL_CHECK(difference);
}
inline void check_equal(const std::vector<Comparison>& comparisons) {
  check_none(first_difference(comparisons));
}

struct Solved {
  ExactProblem problem;
  Solution solution;
};

/// The exact problem of the case with this seed, and its solution.
template <std::uint64_t seed>
const Solved& solved(const Case& c) {
  return once(c, [](const Case& of) {
    ExactProblem problem = of.exact_problem(seed);
    Solution solution = solve(problem, group());
    return Solved{std::move(problem), std::move(solution)};
  });
}

/// The numbers of steps of the integer optimizer, and then of the one with momentum.
inline constexpr int plain_steps = 2, momentum_steps = 3;

/// One step, and the momenta before it.
struct SolvedStep {
  ExactProblem problem;
  Solution solution;
  std::map<std::string, std::vector<float>> momenta;
};

/// The problem of each step: its weights are those after the steps before.
inline const std::vector<SolvedStep>& solved_steps(const Case& c) {
  return once(c, [](const Case& of) {
    std::vector<SolvedStep> steps;
    ExactProblem problem = of.exact_problem(4);
    std::map<std::string, std::vector<float>> momenta;
    for (int step = 0; step < plain_steps + momentum_steps; ++step) {
      steps.push_back({problem, without_input_grad(solve(problem, group())), momenta});
      integer_step(problem, steps.back().solution, step < plain_steps ? nullptr : &momenta);
    }
    return steps;
  });
}

}  // namespace shard::testing
