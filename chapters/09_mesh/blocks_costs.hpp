#pragma once

#include <map>
#include <string>

#include "costs.hpp"
#include "panels.hpp"

namespace shard::meshes {

/// What a product of blocks sends and computes, and the most that it holds beside its factors. The result is
/// among it.
struct ProductCosts {
  std::map<std::pair<std::string, Collective>, Traffic> sent;  ///< along an axis
  Index flops = 0;
  Peak most;

  void send_along(const Along& axis, Collective c, const Traffic& traffic) {
    sent[{axis.name, c}] += traffic;
  }
};

/// A layer's sizes on device (i, j). Its input a is (B, K), its weights are (K, N), its output is (B, N).
/// b, k and n are parts: b and k_rows over the axis rows, k and n over columns.
struct BlockLayer {
  Along rows, columns;
  Index B, K, N, b, k_rows, k, n;

  BlockLayer(const MlpSetting& s, const MeshShape& mesh, Index layer)
      : rows(mesh, "rows", s.device),
        columns(mesh, "columns", s.device),
        B(s.batch),
        K(s.model.width(layer)),
        N(s.model.width(layer + 1)),
        b(rows.part_of(B)),
        k_rows(rows.part_of(K)),
        k(columns.part_of(K)),
        n(columns.part_of(N)) {}
};

/// One message, if it has content.
inline Traffic one_message(Index elements) {
  return elements > 0 ? Traffic{1, elements * bytes_per_element} : Traffic{};
}

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

/// A step with blocks, of the products that `Form` describes. `input` and `output` are a device's rows of the
/// input and the output with all columns, as the loss reads them.
template <class Form>
Costs blocks_costs(const MlpSetting& s, const MeshShape& mesh) {
  std::vector<BlockLayer> layers;
  for (Index l = 0; l < s.model.num_layers; ++l) layers.emplace_back(s, mesh, l);
  const BlockLayer &first = layers.front(), &last = layers.back();
  const Index input = first.b * first.K, output = last.b * last.N;
  Index P = 0;
  for (const BlockLayer& z : layers) P += z.k_rows * z.n;
  Costs costs;
  Peak peak;
  auto product = [&](const ProductCosts& of, Index beside) {
    for (const auto& [what, traffic] : of.sent) costs.send_along(what.first, what.second, traffic);
    costs.flops += of.flops;
    peak.at({beside, of.most.bytes() / bytes_per_element});
  };
  Index inputs = 0;
  peak.at({P, input, first.b * first.k});  // the input with all columns, and cut
  for (const BlockLayer& z : layers) {
    inputs += z.b * z.k;
    product(Form::forward(z), P + inputs);
  }
  costs.send_along("columns", Collective::all_gather,
                   ring_all_gather(slices(last.N, last.b, last.columns.devices), last.columns.place));
  peak.at({P, inputs, output, output});  // gathered, or with the loss's gradient
  peak.at({P, inputs, output, last.b * last.n});
  Index dw = 0;
  for (Index l = s.model.num_layers - 1; l >= 0; --l) {
    const BlockLayer& z = layers[static_cast<std::size_t>(l)];
    const Index d = z.b * z.n;
    product(Form::for_weights(z), P + inputs + d + dw);
    dw += z.k_rows * z.n;
    if (l > 0 || s.input_grad) product(Form::for_input(z), P + inputs + d + dw);
    inputs -= z.b * z.k;
  }
  costs.parameter_bytes = P * bytes_per_element;
  costs.peak_bytes = peak.bytes();
  return costs;
}

}  // namespace shard::meshes
