#pragma once

#include <vector>

#include "engine/ranges.hpp"

namespace shard {

/// One cut of a tensor: along a dimension, over the devices of a group, by the rule of split.hpp. Several
/// cuts of one dimension are nested: each piece of the first is cut by the second. Six rows that are cut over
/// two devices and again over two make pieces of 2, 1, 2 and 1 rows.
struct MeshCut {
  int dimension = 0;
  Communicator* over = nullptr;  ///< nothing: the whole group that the tensor lies on
  Index pieces = 0;              ///< that stay whole, such as heads, of equal extents; 0: every index is one

  bool operator==(const MeshCut&) const = default;
};

/// The indices of a dimension that this device has after these cuts, the outer ones first. Cuts of other
/// dimensions do not count. \throws Error argument when the indices are not so many equal pieces
Range range_after(const std::vector<MeshCut>& cuts, int dimension, Index extent);
/// The same of all dimensions. \throws Error argument for a cut along a dimension that the shape lacks
Ranges ranges_after(const std::vector<MeshCut>& cuts, const Shape& whole);

}  // namespace shard
