#pragma once

#include "product_costs.hpp"

namespace shard::meshes {

/// Gather both: a gather along dimension 1 copies what it has gathered, and so does an all-to-all to or from
/// it. Nothing is copied along an axis with one device, except a factor that is kept.
struct GatherBothCosts {
  static ProductCosts forward(const BlockLayer& z) {
    ProductCosts costs;
    const Index of_a = z.b * z.K, of_w = z.K * z.n;
    costs.flops = product_flops(z.b, z.K, z.n);
    gather(costs, z.columns, z.K, z.b);
    gather(costs, z.rows, z.K, z.n);
    costs.most.at({of_a, z.columns.devices > 1 ? of_a : 0});
    costs.most.at({of_a, of_w, z.b * z.n});
    return costs;
  }
  /// dL/da = d Wᵀ: the gathered columns of W change places with rows, along columns.
  static ProductCosts for_input(const BlockLayer& z) {
    ProductCosts costs;
    const Index of_d = z.b * z.N, gathered = z.K * z.n, of_w = z.k * z.N;
    costs.flops = product_flops(z.b, z.N, z.k);
    gather(costs, z.columns, z.N, z.b);
    gather(costs, z.rows, z.K, z.n);
    exchange(costs, z.columns, z.K, z.n);
    const bool moves = z.columns.devices > 1;
    costs.most.at({of_d, moves ? of_d : 0});
    costs.most.at({of_d, gathered, moves ? of_w : 0});
    costs.most.at({of_d, of_w, moves ? of_w : 0});
    costs.most.at({of_d, of_w, z.b * z.k});
    return costs;
  }
  /// dW = aᵀ d: the gathered rows of a change places with columns, along rows.
  static ProductCosts for_weights(const BlockLayer& z) {
    ProductCosts costs;
    const Index gathered = z.b * z.K, of_a = z.B * z.k_rows, of_d = z.B * z.n;
    costs.flops = product_flops(z.k_rows, z.B, z.n);
    gather(costs, z.columns, z.K, z.b);
    gather(costs, z.rows, z.B, z.n);
    exchange(costs, z.rows, z.K, z.b);
    const bool moves = z.rows.devices > 1;
    costs.most.at({gathered, moves || z.columns.devices > 1 ? gathered : 0});
    costs.most.at({gathered, moves ? of_a : 0});
    costs.most.at({of_a, of_d, z.k_rows * z.n});
    return costs;
  }

 private:
  /// Of a dimension that the axis cuts, with so many elements for each index of it.
  static void gather(ProductCosts& costs, const Along& axis, Index extent, Index per_index) {
    costs.send_along(axis, Collective::all_gather,
                     ring_all_gather(slices(extent, per_index, axis.devices), axis.place));
  }
  static void exchange(ProductCosts& costs, const Along& axis, Index extent, Index per_index) {
    costs.send_along(axis, Collective::all_to_all,
                     pairwise_all_to_all(slices(extent, per_index, axis.devices), axis.place));
  }
};

}  // namespace shard::meshes
