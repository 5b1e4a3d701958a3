#pragma once

/// Closed forms of what collectives send and hold. Elements are float32, 4 bytes each.

#include <vector>

#include "engine/device/books/ledger.hpp"
#include "engine/device/split.hpp"

namespace shard {

inline constexpr Index bytes_per_element = 4;

/// \name What device `device` sends in one collective. Empty messages are not sent.
/// @{
/// Ring: all chunks except its own in the first half, all except its right neighbour's in the second.
Traffic ring_all_reduce(Index elements, int devices, int device);
/// Ring: all slices except its own. `slices`: elements of each device's slice.
Traffic ring_reduce_scatter(const std::vector<Index>& slices, int device);
/// Ring: all slices except its right neighbour's.
Traffic ring_all_gather(const std::vector<Index>& slices, int device);
/// Pairwise: all parts except the one that it keeps. `parts`: elements of its part for each device.
Traffic pairwise_all_to_all(const std::vector<Index>& parts, int device);
/// Binomial tree: the tensor, to each of its children.
Traffic tree_broadcast(Index elements, int devices, int device, int root);
/// Binomial tree, up and down, with messages of 0 bytes.
Traffic tree_barrier(int devices, int device);
/// @}

/// Elements of each device's slice when an axis of `extent` is cut by the rule of split.hpp; `of_one`
/// elements per index of that axis.
std::vector<Index> slices(Index extent, Index of_one, int devices);
/// Elements of the buffer of a ring: the largest of `devices` chunks; 0 for one device.
Index ring_buffer(Index elements, int devices);

}  // namespace shard
