#pragma once

/// Where tokens go that chose experts of several devices.

#include <numeric>
#include <vector>

#include "engine/layers/expert_choice.hpp"

namespace shard::decoders {

/// The token of each choice, by expert: the rows that leave.
inline std::vector<Index> leaving_rows(const ExpertChoice& choice) {
  std::vector<Index> tokens = choice.in_order();
  for (Index& row : tokens) row /= choice.top_k();
  return tokens;
}

/// How many rows a device sends and receives, and which of the received rows are for which of its experts.
struct Route {
  std::vector<Index> to;                 ///< (N)   rows that go to each device
  std::vector<Index> from;               ///< (N)   rows that come from each
  std::vector<std::vector<Index>> rows;  ///< of each of its experts, places among the rows that arrive
  Index arriving = 0;                    ///< m, the sum of `from`
};

/// `leaving` (E): how many of this device's tokens chose each expert. `arriving` (N, E/N): how many of each
/// device's tokens chose each of this device's experts. Rows leave in the order of their experts, and so of
/// the devices that own these. They arrive in the order of the sending devices; rows from one device are in
/// the order of the experts.
inline Route route_of(const std::vector<Index>& leaving, const std::vector<Index>& arriving, int devices,
                      int device) {
  const auto experts = static_cast<Index>(leaving.size());
  Route route;
  route.rows.resize(static_cast<std::size_t>(part(experts, devices, device).size()));
  auto count = arriving.begin();
  for (int d = 0; d < devices; ++d) {
    const Range theirs = part(experts, devices, d);
    route.to.push_back(
        std::accumulate(leaving.begin() + theirs.begin, leaving.begin() + theirs.end, Index{0}));
    const Index before = route.arriving;
    for (std::vector<Index>& of_expert : route.rows)
      for (Index i = *count++; i > 0; --i) of_expert.push_back(route.arriving++);
    route.from.push_back(route.arriving - before);
  }
  return route;
}

}  // namespace shard::decoders
