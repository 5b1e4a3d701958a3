#pragma once

#include <vector>

#include "engine/basics/ranges.hpp"

namespace shard {

/// One cut of a tensor: along a dimension, over the devices of a group, by the rule of split.hpp. Several
/// cuts of one dimension are nested: each piece of the first is cut by the second. Six rows that are cut over
/// two devices and again over two make pieces of 2, 1, 2 and 1 rows.
struct MeshCut {
  int dimension = 0;
  Communicator* over = nullptr;  ///< null: the whole group of the tensor
  Index pieces = 0;              ///< how many equal pieces stay whole, such as heads; 0: each index

  bool operator==(const MeshCut&) const = default;
};

/// The indices of a dimension that this device has after these cuts, the outer ones first. Cuts of other
/// dimensions do not count. \throws Error argument unless a cut's number of pieces divides the extent
Range range_after(const std::vector<MeshCut>& cuts, int dimension, Index extent);
/// The indices of every dimension. \throws Error argument for a cut along a dimension that the shape lacks
Ranges ranges_after(const std::vector<MeshCut>& cuts, const Shape& whole);

}  // namespace shard
