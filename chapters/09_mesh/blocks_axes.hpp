#pragma once

/// The axes of variants that cut each matrix in blocks, and what their products share.

#include "engine/mesh_engine.hpp"

namespace shard::meshes {

/// The rows of each matrix are cut over this axis.
struct rows {
  static constexpr const char* name = "rows";
};
/// The columns of each matrix are cut over this axis.
struct columns {
  static constexpr const char* name = "columns";
};

using namespace letters;  // R, S<0>, S<1>, P
using BlockAxes = MeshAxes<rows, columns>;
using BlockEngine = MeshEngine<BlockAxes>;

/// Block (i, j) of a matrix, on the device with the place i on rows and j on columns.
using Block = OnMesh<BlockAxes, S<0>, S<1>>;

/// The global shape of a product of blocks. \throws Error argument when the factors do not fit
inline Shape product_of(const Block& a, const Block& b) {
  return detail::product_shape(a.global_shape(), false, b.global_shape(), false);
}
inline Shape product_of(const Block& a, const Transposed<Block>& b) {
  return detail::product_shape(a.global_shape(), false, b.matrix.global_shape(), true);
}
inline Shape product_of(const Transposed<Block>& a, const Block& b) {
  return detail::product_shape(a.matrix.global_shape(), true, b.global_shape(), false);
}
/// The shape of this device's block of a matrix.
inline Shape my_block_of(const Mesh& mesh, const Shape& global) {
  return shape_of(ranges_after(Block::cuts(mesh), global));
}

}  // namespace shard::meshes
