#include "engine/workloads/workload.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/sharded_engine.hpp"

namespace shard {

std::unique_ptr<ShardedEngine> Workload::unsharded(Communicator&) const {
  return nullptr;
}

ForeignNames WorkloadKind::block_of(const ForeignModel& model, const std::string&) const {
  throw Error(Code::usage, fmt::format("--block: expected a file of parameters for a {}, given a block of {}",
                                       name(), model.source));
}

Solution solve(const ExactProblem& problem) {
  return problem.workload->solve(problem);
}

std::vector<Solution> addends_by_rows(const ExactProblem& problem, int devices) {
  const Index rows = problem.output_grad.shape.at(0), width = problem.output_grad.shape.at(1);
  std::vector<Solution> addends;
  for (int d = 0; d < devices; ++d) {
    ExactProblem of_device = problem;
    const Range mine = part(rows, devices, d);
    auto begin = of_device.output_grad.values.begin();
    std::fill(begin, begin + mine.begin * width, 0.0F);
    std::fill(begin + mine.end * width, of_device.output_grad.values.end(), 0.0F);
    addends.push_back(solve(of_device));
  }
  return addends;
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
