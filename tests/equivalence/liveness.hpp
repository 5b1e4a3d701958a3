#pragma once

/// Counts the elements of an exact problem's gradients that are not 0: comparing zeros proves little.

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "engine/workloads/decoder/model.hpp"
#include "tests/equivalence/networks.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

/// Whether a parameter is a feed-forward's, an expert's, or a router's.
inline bool is_gated(const std::string& name) {
  return std::ranges::any_of(std::array{"/gate", "/up", "/down", "/router"},
                             [&](const char* end) { return name.ends_with(end); });
}

/// The lines of a gradient, (lines, elements): one for each token of an embedding, for each bucket of a table
/// of biases, for each hidden unit of a feed-forward, and for each expert of a router.
inline std::vector<std::vector<float>> lines_of(const std::string& name, const HostTensor& gradient) {
  const bool by_columns = is_gated(name) && !name.ends_with("/down");
  const auto width = static_cast<std::size_t>(gradient.shape.back());
  std::vector<std::vector<float>> lines(by_columns ? width : gradient.values.size() / width);
  for (std::size_t i = 0; i < gradient.values.size(); ++i)
    lines[by_columns ? i % width : i / width].push_back(gradient.values[i]);
  return lines;
}

/// The number of elements of a gradient that depend on some token, and of those that are not 0.
struct Reached {
  double elements = 0, not_zero = 0;
};

/// Counts each gradient; the experts of a block count together. Elements that depend on no token do not count:
/// embeddings of tokens that do not occur, experts that no token chose, hidden units that are 0 for all tokens,
/// and buckets of distances that do not occur. `ids`: the tokens that occur; none if the embedding is the head.
inline std::map<std::string, Reached> reached(const ExactProblem& problem,
                                              const std::optional<std::vector<Index>>& ids) {
  std::map<std::string, Reached> all;
  for (const auto& [name, gradient] : solve(problem, group())) {
    const bool by_token = name == embedding_name() && ids;
    const bool may_be_closed = is_gated(name) || name.ends_with("/position_bias");
    Reached& sum = all[std::regex_replace(name, std::regex("expert_[0-9]+"), "experts")];
    Index at = 0;
    for (const std::vector<float>& line : lines_of(name, gradient)) {
      const auto size = static_cast<double>(line.size());
      const double not_zero = size - static_cast<double>(std::ranges::count(line, 0.0F));
      const bool is_reached = by_token ? std::ranges::count(*ids, at) > 0 : !may_be_closed || not_zero > 0;
      sum.not_zero += not_zero;
      sum.elements += is_reached ? size : 0;
      ++at;
    }
  }
  all.erase("output");
  return all;
}

/// Checks that 90 % or more of these elements of each gradient are not 0.
inline void check_live(const ExactProblem& problem, const std::optional<std::vector<Index>>& ids) {
  for (const auto& [name, of] : reached(problem, ids)) {
    CAPTURE(problem.workload->describe(), name);
    CHECK(of.elements > 0);
    CHECK(of.not_zero >= 0.9 * of.elements);
  }
}

/// Problems of every case of the kind, and its live ones.
inline std::vector<ExactProblem> problems_of(const WorkloadKind& kind) {
  const auto any = [](const Workload&) { return true; };
  std::vector<ExactProblem> problems;
  for (const TestCase& c : cases_of(kind, any)) problems.push_back(c.workload->exact_problem(c.batch, 3));
  for (int devices : {2, 3, 5})
    for (ExactProblem& problem : live_problems_of(kind, devices, any)) problems.push_back(std::move(problem));
  return problems;
}

}  // namespace shard::testing
