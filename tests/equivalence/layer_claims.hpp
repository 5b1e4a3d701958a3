#pragma once

/// The claims of chapter 07, one after the other.

#include "07_layers/verdicts.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

/// Calls check(layer, claim, results of the whole layer) for every claim of every layer.
template <class Check>
void for_each_claim(Arithmetic arithmetic, const Check& check) {
  const std::unique_ptr<Communicator> alone = group().split(me(), 0);
  for (const layer_cuts::LayerCase& layer : layer_cuts::all_layers()) {
    const layer_cuts::Results whole = layer_cuts::results_of(layer, *alone, arithmetic);
    for (const layer_cuts::Claim& claim : layer.claims) {
      INFO(layer.name << ", " << claim.axis << ": " << claim.price);
      check(layer, claim, whole);
    }
  }
}

}  // namespace shard::testing
