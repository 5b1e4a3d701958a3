#include "engine/workloads/workload.hpp"

namespace shard {

Solution solve(const ExactProblem& problem) {
  return problem.workload->solve(problem);
}

void integer_step(ExactProblem& problem, const Solution& gradients) {
  for (auto& [name, weights] : problem.weights) {
    if (problem.workload->must_stay(name)) continue;
    const std::vector<float>& gradient = gradients.at(name).values;
    for (std::size_t i = 0; i < weights.values.size(); ++i) {
      auto difference = static_cast<std::int64_t>(weights.values[i]) - static_cast<std::int64_t>(gradient[i]);
      weights.values[i] = static_cast<float>(((difference % 5) + 5) % 5 - 2);
    }
  }
}

ExactProblem with_halved_weights(ExactProblem problem) {
  for (auto& [name, weights] : problem.weights)
    for (float& value : weights.values)
      if (!problem.workload->must_stay(name)) value /= 2;
  return problem;
}

}  // namespace shard
