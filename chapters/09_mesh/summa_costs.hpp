#pragma once

#include "panels.hpp"
#include "product_costs.hpp"

namespace shard::meshes {

/// SUMMA: a panel goes down a binomial tree, and addends of a panel go up one.
struct SummaCosts {
  static ProductCosts forward(const BlockLayer& z) {
    ProductCosts costs;
    costs.flops = product_flops(z.b, z.K, z.n);
    for (const Panel& p : panels(z.K, z.rows.devices, z.columns.devices)) {
      const Index of_a = z.b * p.size(), of_w = p.size() * z.n;
      spread(costs, of_a, z.columns, p.of_columns);
      spread(costs, of_w, z.rows, p.of_rows);
      costs.most.at({z.b * z.n, of_a, of_w});
    }
    costs.most.at({z.b * z.n});
    return costs;
  }
  /// dL/da = d Wᵀ: panels of W's rows are spread, and columns of dL/da collected.
  static ProductCosts for_input(const BlockLayer& z) {
    ProductCosts costs;
    Index kept = 0, panels_here = 0;
    costs.flops = product_flops(z.b, z.n, z.K);
    for (const Panel& p : panels(z.K, z.rows.devices, z.columns.devices)) {
      spread(costs, p.size() * z.n, z.rows, p.of_rows);
      costs.most.at({kept, p.size() * z.n, z.b * p.size()});
      collect(costs, z.b * p.size(), z.columns, p.of_columns, kept, panels_here);
    }
    costs.most.at({kept, panels_here == 1 ? 0 : z.b * z.k});  // panels are joined
    return costs;
  }
  /// dW = aᵀ d: panels of a's columns are spread, and rows of dW collected.
  static ProductCosts for_weights(const BlockLayer& z) {
    ProductCosts costs;
    Index kept = 0, panels_here = 0;
    costs.flops = product_flops(z.K, z.b, z.n);
    for (const Panel& p : panels(z.K, z.rows.devices, z.columns.devices)) {
      spread(costs, z.b * p.size(), z.columns, p.of_columns);
      costs.most.at({kept, z.b * p.size(), p.size() * z.n});
      collect(costs, p.size() * z.n, z.rows, p.of_rows, kept, panels_here);
    }
    costs.most.at({kept, panels_here == 1 ? 0 : z.k_rows * z.n});
    return costs;
  }

 private:
  static Traffic tree(Index elements, const Along& axis, const Piece& from) {
    return tree_broadcast(elements, axis.devices, axis.place, from.place);
  }
  static void spread(ProductCosts& costs, Index elements, const Along& axis, const Piece& from) {
    costs.send_along(axis, Collective::broadcast, tree(elements, axis, from));
  }
  /// Each device but the one that keeps the sum sends once. A device with children in the tree holds an
  /// addend of theirs beside its own.
  static void collect(ProductCosts& costs, Index addend, const Along& axis, const Piece& to, Index& kept,
                      Index& panels_here) {
    if (tree(1, axis, to).messages > 0) costs.most.at({kept, addend, addend});
    if (axis.place != to.place) {
      costs.send_along(axis, Collective::send, one_message(addend));
    } else {
      kept += addend;
      ++panels_here;
    }
  }
};

}  // namespace shard::meshes
