#include "engine/proof/costs.hpp"

#include <numeric>

namespace shard {

Traffic Costs::total() const {
  return std::accumulate(sent.begin(), sent.end(), Traffic{}) +
         std::accumulate(sent_after_step.begin(), sent_after_step.end(), Traffic{});
}

Index Costs::step_peak_bytes(Index state_per_element, bool is_first) const {
  const Index state = state_per_element * trained();
  const Index gradients = trained();
  return std::max(peak_bytes + (is_first ? 0 : state),
                  parameter_bytes + gradients + state + after_step_bytes);
}

}  // namespace shard
