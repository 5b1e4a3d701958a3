#pragma once

#include "product_costs.hpp"

namespace shard::meshes {

/// The blocks of a matrix that come to a device of Cannon's, and what it sends of them.
struct Round {
  Along axis;
  int diagonal;     ///< the place on the other axis
  Index extent;     ///< of the dimension that is cut
  Index per_index;  ///< elements of a block for each index of it

  int block(int step) const { return (axis.place + diagonal + step) % axis.devices; }
  Index size(int block) const { return part(extent, axis.devices, block).size() * per_index; }
  /// Elements of the block of a step, if it is another device's.
  Index guest(int step) const { return step < 0 || block(step) == axis.place ? 0 : size(block(step)); }
  /// Every block but the last one, and its left neighbour's. Off the diagonal 0, its own block goes twice: to
  /// where it begins, and on from home.
  Traffic sent_of_factor() const {
    Traffic sent = diagonal == 0 ? Traffic{} : one_message(size(axis.place));
    const int left = (axis.place + axis.devices - 1) % axis.devices;
    for (int step = 0; step < axis.devices - 1; ++step)
      if (block(step) != left) sent += one_message(size(block(step)));
    return sent;
  }
  /// Every block but its own.
  Traffic sent_of_result() const {
    Traffic sent;
    for (int k = 0; k < axis.devices; ++k)
      if (k != axis.place) sent += one_message(size(k));
    return sent;
  }
};

/// Cannon: each device sends one block less than there are along the axis, of each matrix that moves.
struct CannonCosts {
  static ProductCosts forward(const BlockLayer& z) {
    const Round a{z.columns, z.rows.place, z.K, z.b}, w{z.rows, z.columns.place, z.K, z.n};
    ProductCosts costs;
    costs.flops = product_flops(z.b, z.K, z.n);
    costs.send_along(a.axis, Collective::send, a.sent_of_factor());
    costs.send_along(w.axis, Collective::send, w.sent_of_factor());
    for (int t = 0; t < z.rows.devices; ++t) {
      costs.most.at({z.b * z.n, a.guest(t - 1), a.guest(t), w.guest(t - 1)});
      costs.most.at({z.b * z.n, a.guest(t), w.guest(t - 1), w.guest(t)});
    }
    return costs;
  }
  /// dL/da = d Wᵀ: blocks of W come along the column, blocks of dL/da along the row.
  static ProductCosts for_input(const BlockLayer& z) {
    return collected({z.rows, z.columns.place, z.K, z.n}, {z.columns, z.rows.place, z.K, z.b},
                     product_flops(z.b, z.n, z.K));
  }
  /// dW = aᵀ d: blocks of a come along the row, blocks of dW along the column.
  static ProductCosts for_weights(const BlockLayer& z) {
    return collected({z.columns, z.rows.place, z.K, z.b}, {z.rows, z.columns.place, z.K, z.n},
                     product_flops(z.K, z.b, z.n));
  }

 private:
  static ProductCosts collected(const Round& factor, const Round& result, Index flops) {
    ProductCosts costs;
    costs.flops = flops;
    costs.send_along(factor.axis, Collective::send, factor.sent_of_factor());
    costs.send_along(result.axis, Collective::send, result.sent_of_result());
    const int devices = result.axis.devices;
    const Index mine = result.size(result.axis.place);
    Index home = 0;  // this device's block, from the step on in which it comes by
    for (int t = 0; t < devices; ++t) {
      const int block = result.block(t);
      const bool arrives = t > 0 && block != (result.axis.place + 1) % devices;
      costs.most.at({home, result.guest(t - 1), factor.guest(t - 1), factor.guest(t)});
      costs.most.at({home, result.guest(t - 1), factor.guest(t), arrives ? result.size(block) : 0});
      costs.most.at({home, factor.guest(t), result.size(block)});
      if (block == result.axis.place) home = mine;
    }
    const bool has_rest = (result.diagonal + devices - 1) % devices != 0;
    costs.most.at({home, result.guest(devices - 1), factor.guest(devices - 1), has_rest ? mine : 0});
    return costs;
  }
};

}  // namespace shard::meshes
