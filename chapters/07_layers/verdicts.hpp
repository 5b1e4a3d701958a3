#pragma once

/// Holds a claim against what happens: the cut layer's results against the whole layer's, and what it sends
/// against the closed form.

#include "claims.hpp"
#include "engine/program/report.hpp"

namespace shard::layer_cuts {

/// Output, dL/dx and the weights' gradients, whole.
using Results = std::map<std::string, HostTensor>;
/// Runs the layer forward and backward. Output and gradients, each as this device holds it. A collective.
std::map<std::string, Placed> placed_results(Layer& layer, const LayerCase& of);
/// The results of the whole layer, on one device. \throws Error internal when more than a tenth of a result is 0,
/// since such a case would notice few mistakes
Results results_of(const LayerCase& layer, Communicator& alone, Arithmetic arithmetic);

/// The result of testing a claim; the same on all devices.
struct Finding {
  double relative = 0;     ///< largest difference, relative to the largest element; infinite if no number
  std::string difference;  ///< the first one, of the first device that has one
  Figure bytes, messages;  ///< sent
  bool is_as_claimed = false;
};
/// Runs the cut layer. In exact arithmetic, right cuts must give the same bits. A collective.
Finding find(const LayerCase& layer, const Claim& claim, const Results& expected, Communicator& group,
             Arithmetic arithmetic);

}  // namespace shard::layer_cuts
