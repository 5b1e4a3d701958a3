#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/basics/ranges.hpp"
#include "engine/proof/diagnosis.hpp"
#include "engine/weights/checkpoint.hpp"

namespace shard {

class Workload;

/// Output ("output"), dL/dx ("input_grad") and each parameter's gradient, by name.
using Solution = std::map<std::string, HostTensor>;

/// A problem whose every sum is exact in float32, so that any cut and any order of summation must give the
/// same bits.
struct ExactProblem {
  std::shared_ptr<const Workload> workload;  ///< the network for which it is exact
  HostTensor input;
  HostTensor output_grad;  ///< in the shape of the output
  std::map<std::string, HostTensor> weights;
  std::vector<Range> counted = {};  ///< the rows that count, by of_rows; empty: all
};

/// The exact problems of a network. A plain network defines exact_problem. `mistakes` and `solve_with` explain wrong
/// results; the others are for networks that choose or round.
class ExactNetwork {
 public:
  virtual ~ExactNetwork() = default;

  /// Uses the training data if they are open and fit the network.
  virtual ExactProblem exact_problem(Index batch, std::uint64_t seed) const = 0;
  /// The results that every engine must return: those of the unsharded engine, or of the definitions, without
  /// an engine. \throws Error internal when a product is not exact in float32, or there is no unsharded engine
  virtual Solution solve(const ExactProblem& problem, Communicator& group) const = 0;
  /// The mistakes for which solve_with computes results.
  virtual std::vector<Cause> mistakes() const { return {}; }
  virtual Solution solve_with(Cause /*mistake*/, const ExactProblem& problem, Communicator& group) const {
    return solve(problem, group);
  }
  /// Whether exact problems are exact only while this parameter does not change.
  virtual bool must_stay(const std::string& /*parameter*/) const { return false; }
  /// Weights' gradients in exact problems are multiples of this number.
  virtual float gradient_unit() const { return 1; }
};

}  // namespace shard
