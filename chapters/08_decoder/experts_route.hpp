#pragma once

/// Where tokens go that chose experts of several devices.

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

/// Of counts (N, E): how many of each device's tokens chose each expert. Rows leave in the order of their
/// experts, and so of the devices that own these. They arrive in the order of the sending devices; rows from
/// one device are in the order of the experts.
inline Route route_of(const std::vector<Index>& counts, int devices, int device) {
  const Index experts = static_cast<Index>(counts.size()) / devices;
  auto count = [&](int from, Index e) { return counts[static_cast<std::size_t>(from * experts + e)]; };
  const Range mine = part(experts, devices, device);
  Route route;
  route.rows.resize(static_cast<std::size_t>(mine.size()));
  for (int d = 0; d < devices; ++d) {
    const Range theirs = part(experts, devices, d);
    Index outgoing = 0, incoming = 0;
    for (Index e = theirs.begin; e < theirs.end; ++e) outgoing += count(device, e);
    for (Index e = mine.begin; e < mine.end; ++e) {
      incoming += count(d, e);
      for (Index i = 0; i < count(d, e); ++i)
        route.rows[static_cast<std::size_t>(e - mine.begin)].push_back(route.arriving++);
    }
    route.to.push_back(outgoing);
    route.from.push_back(incoming);
  }
  return route;
}

}  // namespace shard::decoders
