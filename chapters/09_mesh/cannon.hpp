#pragma once

/// Cannon's products of blocks on a square mesh: blocks go around (Cannon 1969, "A cellular computer to
/// implement the Kalman filter algorithm", chapter 3).

#include "around.hpp"

namespace shard::meshes {

class Cannon {
 public:
  /// ## Cannon: A B
  /// In step t, device (i, j) multiplies A(i, k) and B(k, j), for k = i + j + t. Blocks of A come along its
  /// row of devices, and blocks of B along its column.
  Block operator()(BlockEngine& engine, const Block& a, const Block& b) const {
    const Square mesh(engine);
    const Shape global = product_shape(a, b);
    Circulating from_row(mesh.columns, mesh.i, a, 1), from_column(mesh.rows, mesh.j, b, 0);
    Tensor c(my_block_of(engine.mesh(), global));  // (m, n)
    for (int step = 0; step < mesh.size; ++step) {
      const Tensor& of_a = from_row.next();     // (m, k)
      const Tensor& of_b = from_column.next();  // (k, n)
      matmul_accumulate(of_a, of_b, c);
    }
    return Block(engine.mesh(), std::move(c), global);
  }

  /// ## Cannon: A Bᵀ
  /// A stays. B(k, j) comes along the column of devices, and block (i, k) of the result along the row.
  Block operator()(BlockEngine& engine, const Block& a, const Transposed<Block>& b) const {
    const Square mesh(engine);
    const Shape global = product_shape(a, b);
    Circulating from_column(mesh.rows, mesh.j, b.matrix, 0);
    Collecting c(mesh.columns, mesh.i, my_block_of(engine.mesh(), global), 1, global[1]);
    for (int step = 0; step < mesh.size; ++step) c.add_product(a.local(), transposed(from_column.next()));
    return Block(engine.mesh(), std::move(c).result(), global);
  }

  /// ## Cannon: Aᵀ B
  /// B stays. A(i, k) comes along the row of devices, and block (k, j) of the result along the column.
  Block operator()(BlockEngine& engine, const Transposed<Block>& a, const Block& b) const {
    const Square mesh(engine);
    const Shape global = product_shape(a, b);
    Circulating from_row(mesh.columns, mesh.i, a.matrix, 1);
    Collecting c(mesh.rows, mesh.j, my_block_of(engine.mesh(), global), 0, global[0]);
    for (int step = 0; step < mesh.size; ++step) c.add_product(transposed(from_row.next()), b.local());
    return Block(engine.mesh(), std::move(c).result(), global);
  }

 private:
  /// The two groups of device (i, j), and how many devices are in each.
  struct Square {
    Communicator &rows, &columns;
    int i, j, size;

    explicit Square(BlockEngine& engine)
        : rows(engine.mesh().axis("rows")),
          columns(engine.mesh().axis("columns")),
          i(rows.device_id()),
          j(columns.device_id()),
          size(rows.num_devices()) {}
  };
};

/// cannon(engine, a, b), and so with either factor transposed.
inline constexpr Cannon cannon{};

}  // namespace shard::meshes
