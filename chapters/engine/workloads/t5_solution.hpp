#pragma once

#include "engine/workloads/t5_model.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// Losses, (B · S, 1), and the gradient of each parameter, from the definitions (GridSolution).
/// \throws Error internal when a sum would not be exact in float32
Solution solve_t5(const T5Model& model, const ExactProblem& problem);

}  // namespace shard
