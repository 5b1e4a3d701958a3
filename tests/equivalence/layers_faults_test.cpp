/// Shows that the tests of chapter 07 can fail: the comparison with the whole layer must notice each call left
/// out, and each message corrupted.

#include <algorithm>

#include "tests/equivalence/layer_claims.hpp"
#include "tests/harness/planted_faults.hpp"

namespace shard::testing {

RUNS_ON(.in_one_process = {2, 3});

using namespace layer_cuts;

namespace {

bool is_noticed(const LayerCase& layer, const Claim& claim, const layer_cuts::Results& whole,
                const Faults& faults) {
  plant_faults(faults);
  bool differs = false;
  try {
    differs = find(layer, claim, whole, group(), grid()).relative > 0;
  } catch (const Error&) {  // a mismatch, or a shape that does not fit
    differs = true;
  }
  plant_faults({});
  return std::ranges::max(group().exchange("noticed", differs ? 1 : 0)) > 0;
}

/// Whether a message may have a number on which no result depends: the largest element of a softmax's row, a key
/// that the mask hides, or an element of a halo that is not the largest.
bool may_be_idle(const LayerCase& layer, const Claim& claim) {
  return (layer.name == "cross entropy" && claim.axis == "vocabulary") || layer.name == "max pooling" ||
         (layer.name.ends_with("attention") && claim.axis == "sequence");
}

}  // namespace

TEST_CASE("layers: every call that is left out, and every message that is corrupted, is noticed") {
  Index planted = 0;
  for_each_claim(grid(), [&](const LayerCase& layer, const Claim& claim, const auto& whole) {
    if (claim.verdict == Verdict::differs) return;
    plant_faults({});
    find(layer, claim, whole, group(), grid());
    const Index calls = std::ranges::max(group().exchange("calls", calls_made()));
    const std::vector<Index> messages = group().exchange("messages", messages_sent());
    for (Index k = 0; k < calls; ++k, ++planted) {
      INFO("call " << k << " of " << calls);
      CHECK(is_noticed(layer, claim, whole, Faults{k, {}, 0}));
    }
    for (int d = 0; d < devices() && !may_be_idle(layer, claim); ++d)
      for (Index k = 0; k < messages[static_cast<std::size_t>(d)]; ++k, ++planted) {
        INFO("message " << k << " of device " << d);
        CHECK(is_noticed(layer, claim, whole, Faults{{}, k, d}));
      }
  });
  CHECK(planted > 100);
}

}  // namespace shard::testing
