#pragma once

#include <map>
#include <string>

#include "engine/checkpoint.hpp"
#include "engine/model.hpp"
#include "engine/routing.hpp"
#include "engine/safetensors.hpp"

namespace shard {

class Digits;

/// A problem whose every sum is exact in float32, so that any cut and any order of summation must give the same
/// bits: small integers throughout, and Σ |a| |b| ≤ 2²⁴ for every product, forward and backward.
struct ExactProblem {
  Model model;
  HostTensor input;        ///< (B, D), 0..16; the last of several rows is zeros: the kink of every ReLU
  HostTensor output_grad;  ///< like the output, −2..2
  std::map<std::string, HostTensor> weights;  ///< dense −2..2 for two layers, sparse ±1 for deeper stacks
  Routing routing;                            ///< of a mixture; its weights and aux_weight keep gates exact
};

/// Pixels of digits for the input where the model is as wide as they are, else integers of the same range.
ExactProblem make_exact_problem(const Model& model, Index batch, std::uint64_t seed,
                                const Digits* digits = nullptr);

/// Output (`output`), dL/dx (`input_grad`) and each parameter's gradient, in 64-bit integers: independent of
/// engines, tensors and floating point. \throws Error internal when a product's Σ |a| |b| exceeds 2²⁴
std::map<std::string, HostTensor> solve(const ExactProblem& problem);

/// The weights of the problem after one step of the integer optimizer, but a router's, with these gradients.
void integer_step(ExactProblem& problem, const std::map<std::string, HostTensor>& gradients);

}  // namespace shard
