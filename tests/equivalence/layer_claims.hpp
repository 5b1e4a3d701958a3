#pragma once

/// The claims of chapter 07, one after the other.

#include "07_layers/verdicts.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

/// For every claim of every layer: check(layer, claim, the whole layer's results).
template <class Check>
void for_each_claim(layers::Arithmetic arithmetic, const Check& check) {
  const std::unique_ptr<Communicator> alone = group().split(me(), 0);
  for (const layers::LayerCase& layer : layers::all_layers()) {
    const layers::Results whole = layers::results_of(layer, *alone, arithmetic);
    for (const layers::Claim& claim : layer.claims) {
      INFO(layer.name << ", " << claim.axis << ": " << claim.price);
      check(layer, claim, whole);
    }
  }
}

}  // namespace shard::testing
