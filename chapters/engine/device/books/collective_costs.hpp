#pragma once

/// What collectives send and hold, as closed forms. Elements are float32, 4 bytes each.

#include <vector>

#include "engine/device/books/ledger.hpp"
#include "engine/device/split.hpp"

namespace shard {

inline constexpr Index bytes_per_element = 4;

/// \name What device `device` sends in one collective. Messages without content are not sent.
/// @{
/// Ring: every chunk but mine in the first half, every chunk but my right neighbour's in the second.
Traffic ring_all_reduce(Index elements, int devices, int device);
/// Ring: every slice but mine. `slices`: elements of each device's slice.
Traffic ring_reduce_scatter(const std::vector<Index>& slices, int device);
/// Ring: every slice but my right neighbour's.
Traffic ring_all_gather(const std::vector<Index>& slices, int device);
/// Pairwise: every part but the one I keep. `parts`: elements of my part for each device.
Traffic pairwise_all_to_all(const std::vector<Index>& parts, int device);
/// Binomial tree: the tensor, to each of my children.
Traffic tree_broadcast(Index elements, int devices, int device, int root);
/// Binomial tree, up and down, with messages of 0 bytes.
Traffic tree_barrier(int devices, int device);
/// @}

/// Elements of each device's slice when an axis of `extent` is cut by the rule of split.hpp; `of_one`
/// elements per index of that axis.
std::vector<Index> slices(Index extent, Index of_one, int devices);
/// Elements of a ring's buffer: the largest of `devices` chunks; none for one device.
Index ring_buffer(Index elements, int devices);

}  // namespace shard
