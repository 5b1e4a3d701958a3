#pragma once

#include "engine/workloads/decoder_model.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// Losses, (B · S, 1), and the gradient of each parameter, from the definitions: whole matrices on the host, and
/// attention as a softmax over all keys. Sums are exact; what is nonlinear is computed in float32 as the grid
/// rounds it. \throws Error internal when a sum would not be exact in float32
Solution solve_decoder(const DecoderModel& model, const ExactProblem& problem);

/// The experts of each token, (B · S · k), in each block.
std::vector<std::vector<Index>> chosen_experts(const DecoderModel& model, const ExactProblem& problem);

}  // namespace shard
