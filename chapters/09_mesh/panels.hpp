#pragma once

/// Panels: the pieces of an inner dimension that SUMMA takes one after the other.

#include <vector>

#include "engine/device/split.hpp"

namespace shard::meshes {

/// A piece of a dimension, and where it lies in the part of a device that an axis gives it to.
struct Piece {
  int place;    ///< on the axis
  Range range;  ///< within that device's part
};
/// Indices of a dimension that are together on one device of the axis rows, and on one of columns.
struct Panel {
  Piece of_rows, of_columns;

  Index size() const { return of_rows.range.size(); }
};

/// The common refinement of both cuts of a dimension: it is cut wherever one of the axes cuts it. Over 2 and
/// over 3 devices, six indices are panels of 2, 1, 1 and 2.
inline std::vector<Panel> panels(Index extent, int rows, int columns) {
  std::vector<Panel> all;
  for (Index begin = 0; begin < extent;) {
    const int row = part_with(extent, rows, begin), column = part_with(extent, columns, begin);
    const Range by_rows = part(extent, rows, row), by_columns = part(extent, columns, column);
    const Index end = std::min(by_rows.end, by_columns.end);
    all.push_back({{row, {begin - by_rows.begin, end - by_rows.begin}},
                   {column, {begin - by_columns.begin, end - by_columns.begin}}});
    begin = end;
  }
  return all;
}

}  // namespace shard::meshes
