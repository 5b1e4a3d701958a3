#pragma once

/// Where tokens go that chose experts of several devices.

#include <numeric>

#include "engine/layers/mixture_of_experts.hpp"

namespace shard::decoders {

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

/// A device tells each other one how many of its tokens chose each expert there, so that it knows what will
/// arrive: (N, E/N). `leaving` (E): how many of its own tokens chose each expert.
inline std::vector<Index> arriving(Communicator& group, Tensor leaving) {
  std::vector<Index> experts;  // of each device
  for (int d = 0; d < group.num_devices(); ++d)
    experts.push_back(part(leaving.size(), group.num_devices(), d).size());
  const std::vector<float> all = group.all_to_all_async(std::move(leaving), experts, 0).get().to_host();
  return {all.begin(), all.end()};
}
/// Refuses rows that came, unless they are as many as each device has announced, `from`. All devices of the
/// group learn it, so that none waits for one that has given up.
inline void require_announced(Communicator& group, const std::vector<Index>& from, const Tensor& rows) {
  const Index announced = std::accumulate(from.begin(), from.end(), Index{0});
  const std::vector<Index> more = group.exchange("rows that came", rows.extent(0) - announced);
  if (std::ranges::count(more, 0) < std::ssize(more))
    refuse(Code::internal, "experts", to_string({announced, rows.extent(1)}) + ", as announced",
           to_string(rows.shape()));
}
/// Sends each device of a group its number of rows, and receives from each as many as it has announced.
inline Tensor sent(Communicator& group, Tensor rows, const std::vector<Index>& to,
                   const std::vector<Index>& from, SourceLine where = SourceLine::current()) {
  Tensor arrived = group.all_to_all_async(std::move(rows), to, 0, where).get(where);
  require_announced(group, from, arrived);
  return arrived;
}

}  // namespace shard::decoders
