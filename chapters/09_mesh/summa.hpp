#pragma once

/// SUMMA: products of blocks, panel by panel (van de Geijn and Watts 1997, "SUMMA: scalable universal matrix
/// multiplication algorithm", sections 3 and 4).

#include "blocks.hpp"

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

/// Cuts a dimension wherever one of the two axes cuts it. Six indices, cut into 3 + 3 and into 2 + 2 + 2, give
/// panels of 2, 1, 1 and 2.
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

class Summa {
 public:
  /// ## SUMMA: A B
  /// The inner dimension is cut in panels. Each panel of A goes along its row of devices, and each panel of B
  /// along its column. Then each device adds the product of the two to its block.
  Block operator()(BlockEngine& engine, const Block& a, const Block& b) const {
    Mesh& mesh = engine.mesh();
    const Shape global = product_shape(a, b);
    Tensor c(my_block_of(mesh, global));  // (m, n)
    for (const Panel& panel : panels_of(mesh, b.global_shape()[0])) {
      Tensor of_a = spread(mesh.axis(columns::name), a.local(), 1, panel.of_columns);  // (m, p)
      Tensor of_b = spread(mesh.axis(rows::name), b.local(), 0, panel.of_rows);        // (p, n)
      matmul_accumulate(of_a, of_b, c);
    }
    return Block(mesh, std::move(c), global);
  }

  /// ## SUMMA: A Bᵀ
  /// A panel of the result's columns at a time. The panel of B goes along its column of devices. Each device
  /// then has an addend of the panel of the result, and its row of devices adds them up where it belongs.
  Block operator()(BlockEngine& engine, const Block& a, const Transposed<Block>& b) const {
    Mesh& mesh = engine.mesh();
    const Shape global = product_shape(a, b);
    std::vector<Tensor> mine;
    for (const Panel& panel : panels_of(mesh, global[1])) {
      Tensor of_b = spread(mesh.axis(rows::name), b.matrix.local(), 0, panel.of_rows);  // (p, n)
      Tensor addend = matmul(a.local(), transposed(of_b));                              // (m, p)
      of_b = Tensor();
      collect(mesh.axis(columns::name), std::move(addend), panel.of_columns.place, mine);
    }
    return Block(mesh, joined(std::move(mine), 1, my_block_of(mesh, global)), global);
  }

  /// ## SUMMA: Aᵀ B
  /// A panel of the result's rows at a time. The panel of A goes along its row of devices, and the column of
  /// devices adds up the addends.
  Block operator()(BlockEngine& engine, const Transposed<Block>& a, const Block& b) const {
    Mesh& mesh = engine.mesh();
    const Shape global = product_shape(a, b);
    std::vector<Tensor> mine;
    for (const Panel& panel : panels_of(mesh, global[0])) {
      Tensor of_a = spread(mesh.axis(columns::name), a.matrix.local(), 1, panel.of_columns);  // (m, p)
      Tensor addend = matmul(transposed(of_a), b.local());                                    // (p, n)
      of_a = Tensor();
      collect(mesh.axis(rows::name), std::move(addend), panel.of_rows.place, mine);
    }
    return Block(mesh, joined(std::move(mine), 0, my_block_of(mesh, global)), global);
  }

 private:
  static std::vector<Panel> panels_of(const Mesh& mesh, Index extent) {
    return panels(extent, mesh.size(rows::name), mesh.size(columns::name));
  }
  /// The panel on every device of the axis. The device that has it cuts it out of its block.
  static Tensor spread(Communicator& axis, const Tensor& block, int dimension, const Piece& piece) {
    const bool is_mine = axis.device_id() == piece.place;
    Tensor panel = is_mine ? slice(block, dimension, piece.range.begin, piece.range.end) : Tensor();
    return axis.broadcast_async(std::move(panel), piece.place).get();
  }
  /// Adds up the addends of all devices of the axis on device `root`, which keeps the sum. The sum goes up a
  /// binomial tree, so each other device sends once.
  static void collect(Communicator& axis, Tensor addend, int root, std::vector<Tensor>& kept) {
    const int devices = axis.num_devices(), me = (axis.device_id() - root + devices) % devices;
    auto place = [&](int in_tree) { return (in_tree + root) % devices; };
    for (int bit = 1; bit < devices; bit *= 2) {
      if ((me & bit) != 0) return axis.send(place(me - bit), addend);
      if (me + bit < devices) addend = add(std::move(addend), axis.receive(place(me + bit)));
    }
    kept.push_back(std::move(addend));
  }
  static Tensor joined(std::vector<Tensor> panels, int dimension, const Shape& shape) {
    if (panels.empty()) return Tensor(shape);
    if (panels.size() == 1) return std::move(panels[0]);
    std::vector<const Tensor*> all;
    for (const Tensor& panel : panels) all.push_back(&panel);
    return concatenate(all, dimension);
  }
};

/// summa(engine, a, b), summa(engine, a, transposed(b)) and summa(engine, transposed(a), b).
inline constexpr Summa summa{};

}  // namespace shard::meshes
