#pragma once

/// Each variant of a chapter on each network of its own, and what should come of some steps of it.

#include "tests/equivalence/equivalence.hpp"
#include "tests/harness/catch.hpp"

namespace shard::testing {

/// make(case), made once for all variants, on any number of devices, that are tested with the same network.
template <class Make>
const auto& once(const Case& c, const Make& make) {
  using Made = std::remove_const_t<decltype(make(c))>;
  static std::map<std::pair<std::shared_ptr<const Workload>, Index>, Made> all;
  const auto key = std::pair(c.network, c.batch);
  auto found = all.find(key);
  if (found == all.end()) found = all.emplace(key, make(c)).first;
  return found->second;
}

/// Each variant's cases, the smallest first. Ends at the first case that fails on a device. A part of a larger group
/// has the exact results of one step, and the rest only with `--all`.
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

/// Checks that nothing differs. What does is a note: "w on device 1 at (0, 0): expected 4, given 1: ...".
inline void check_equal(const std::vector<Comparison>& comparisons) {
  const std::string difference = first_difference(comparisons);
  if (!difference.empty()) FAIL_CHECK(difference);
}

/// A problem and its solution.
struct Solved {
  ExactProblem problem;
  Solution solution;
};

/// A problem of the case. \tparam seed of the problem
template <std::uint64_t seed>
const Solved& solved(const Case& c) {
  return once(c, [](const Case& of) {
    ExactProblem problem = of.exact_problem(seed);
    Solution solution = solve(problem, group());
    return Solved{std::move(problem), std::move(solution)};
  });
}

/// Steps of the integer optimizer, and then steps of that with momentum.
inline constexpr int plain_steps = 2, momentum_steps = 3;

/// One of these steps, and the momenta before it.
struct SolvedStep {
  ExactProblem problem;
  Solution solution;
  std::map<std::string, std::vector<float>> momenta;
};

/// The problems of these steps.
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
