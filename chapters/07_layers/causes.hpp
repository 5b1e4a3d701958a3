#pragma once

/// The likely causes of wrong results of the two cuts that are exercises: what some wrong versions of them
/// compute.

#include "verdicts.hpp"

namespace shard::layer_cuts {

/// What was forgotten, if a wrong version of this cut has all results of this device, those that are right,
/// too.
Diagnosis likely_cause(const LayerCase& layer, const Claim& claim,
                       const std::map<std::string, Placed>& results);

}  // namespace shard::layer_cuts
