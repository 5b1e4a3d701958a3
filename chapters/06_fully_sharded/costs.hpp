#pragma once

#include <vector>

#include "engine/costs.hpp"

namespace shard {

/// Sizes, in elements, from which this chapter's forms are made: layers, and this device's parts of them.
struct ShardedSizes {
  const Setting& s;
  Index L;  ///< layers
  Index P;  ///< elements of all weights
  Index b;  ///< my rows of the batch

  explicit ShardedSizes(const Setting& setting)
      : s(setting),
        L(s.model.num_layers),
        P(s.model.weights()),
        b(part(s.batch, s.devices, s.device).size()) {}

  /// Layer l's weights, whole; everybody's rows of them; and mine.
  Index w(Index l) const { return s.model.weights(l); }
  std::vector<Index> shards(Index l) const {
    return slices(s.model.width(l), s.model.width(l + 1), s.devices);
  }
  Index mine(Index l) const { return shards(l)[static_cast<std::size_t>(s.device)]; }
  /// My rows of all parameters: about P/N.
  Index mine() const {
    Index elements = 0;
    for (Index l = 0; l < L; ++l) elements += mine(l);
    return elements;
  }
  /// What a reduce-scatter holds beside its argument: room for the largest slice.
  Index buffer(Index l) const { return s.devices == 1 ? 0 : shards(l)[0]; }

  /// The input of layer l for so many rows; of layer L: the output.
  Index a(Index l, Index rows) const { return rows * s.model.width(l); }
  Index a(Index l) const { return a(l, b); }
  /// All layers' inputs: what forward keeps.
  Index inputs(Index rows) const {
    Index elements = 0;
    for (Index l = 0; l < L; ++l) elements += a(l, rows);
    return elements;
  }
  /// Whether dL/dx of layer l is computed.
  bool goes_on(Index l) const { return l > 0 || s.input_grad; }

  /// Of data parallel: three products of one size for each layer, on my rows.
  Index flops() const {
    Index flops = 0;
    for (Index l = 0; l < L; ++l)
      flops += (goes_on(l) ? 3 : 2) * product_flops(b, s.model.width(l), s.model.width(l + 1));
    return flops;
  }
  Traffic gather(Index l) const { return ring_all_gather(shards(l), s.device); }
  Traffic scatter(Index l) const { return ring_reduce_scatter(shards(l), s.device); }
};

/// What the first two stages have in common: whole parameters, and a step that gathers them. That holds my
/// rows of a layer beside the parameters, since the old ones are freed before the new ones arrive.
inline Costs costs_of_whole_parameters(const ShardedSizes& z) {
  Costs costs;
  costs.flops = z.flops();
  costs.parameter_bytes = z.P * bytes_per_element;
  costs.trained_bytes = z.mine() * bytes_per_element;
  for (Index l = 0; l < z.L; ++l) {
    costs.after_step(Collective::all_gather) += z.gather(l);
    costs.after_step_bytes = std::max(costs.after_step_bytes, z.mine(l) * bytes_per_element);
  }
  return costs;
}

/// `zero1`: P elements as they are reduce-scattered, and P as they are gathered after the step, each times
/// (N-1)/N: what data parallel sends.
///
/// Most held: whole addends until the end of the backward pass. In pieces, my whole input stays, and the
/// pieces of dL/dx are put together beside it; the first piece's addend is the sum, a later one lies beside
/// it until it is added.
inline Costs zero1_costs(const Setting& s) {
  const ShardedSizes z(s);
  const Index x = s.micro_batches > 1 ? z.a(0) : 0;
  const Index dx = s.input_grad ? x : 0;
  Peak peak;
  for (int piece = 0; piece < s.micro_batches; ++piece) {
    const Index rows = part(z.b, static_cast<int>(s.micro_batches), piece).size();
    Index inputs = z.inputs(rows);
    Index dw = piece == 0 ? 0 : z.P;  // the sums so far
    peak.at({z.P, x, dx, dw, inputs, z.a(z.L, rows), z.a(z.L, rows)});
    for (Index l = z.L - 1; l >= 0; --l) {
      if (piece == 0) dw += z.w(l);
      peak.at({z.P, x, dx, dw, piece == 0 ? 0 : z.w(l), inputs, z.a(l + 1, rows),
               z.goes_on(l) ? z.a(l, rows) : 0});
      inputs -= z.a(l, rows);
    }
  }
  // The reduction: from the last layer on, whole addends become my rows of the sums.
  Costs costs = costs_of_whole_parameters(z);
  Index addends = z.P, sums = 0;
  for (Index l = z.L - 1; l >= 0; --l) {
    peak.at({z.P, x, s.input_grad ? z.a(0) : 0, addends, sums, z.buffer(l)});
    addends -= z.w(l);
    sums += z.mine(l);
    costs[Collective::reduce_scatter] += z.scatter(l);
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

/// `zero2`: the same bytes for one piece; M pieces are reduced one by one, and send (M + 1) P (N-1)/N.
///
/// Most held: one layer's whole gradient, being reduced, beside my rows of the others.
inline Costs zero2_costs(const Setting& s) {
  const ShardedSizes z(s);
  const Index x = s.micro_batches > 1 ? z.a(0) : 0;
  const Index dx = s.input_grad ? x : 0;
  Costs costs = costs_of_whole_parameters(z);
  Peak peak;
  Index dw = 0;  // my rows of the sums so far
  for (int piece = 0; piece < s.micro_batches; ++piece) {
    const Index rows = part(z.b, static_cast<int>(s.micro_batches), piece).size();
    Index inputs = z.inputs(rows);
    peak.at({z.P, x, dx, dw, inputs, z.a(z.L, rows), z.a(z.L, rows)});
    for (Index l = z.L - 1; l >= 0; --l) {
      peak.at({z.P, x, dx, dw, inputs, z.a(l + 1, rows), z.w(l), z.buffer(l)});
      if (piece == 0) dw += z.mine(l);
      peak.at({z.P, x, dx, dw, inputs, z.a(l + 1, rows), z.goes_on(l) ? z.a(l, rows) : 0});
      inputs -= z.a(l, rows);
      costs[Collective::reduce_scatter] += z.scatter(l);
    }
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

/// What the variants of the third stage have in common: all is cut alike.
inline Costs costs_of_shards(const ShardedSizes& z) {
  Costs costs;
  costs.flops = z.flops();
  costs.parameter_bytes = z.mine() * bytes_per_element;
  for (Index l = 0; l < z.L; ++l) costs[Collective::reduce_scatter] += z.scatter(l);
  return costs;
}

/// `zero3`: weights gathered forward, gathered again backward where dL/dx goes on, and gradients
/// reduce-scattered: 3 P (N-1)/N elements, less layer 0's second gather.
///
/// Most held: beside shards and activations one whole matrix, a layer's weights or their gradient.
inline Costs zero3_costs(const Setting& s) {
  const ShardedSizes z(s);
  Costs costs = costs_of_shards(z);
  const Index shards = z.mine();
  Peak peak;
  Index inputs = 0;
  for (Index l = 0; l < z.L; ++l) {
    inputs += z.a(l);
    peak.at({shards, inputs, z.w(l), z.a(l + 1)});
    costs[Collective::all_gather] += z.gather(l);
  }
  peak.at({shards, inputs, z.a(z.L), z.a(z.L)});
  Index dw = 0;  // my rows of the gradients so far
  for (Index l = z.L - 1; l >= 0; --l) {
    peak.at({shards, inputs, z.a(l + 1), dw, z.w(l), z.buffer(l)});
    dw += z.mine(l);
    if (z.goes_on(l)) {
      peak.at({shards, inputs, z.a(l + 1), dw, z.w(l), z.a(l)});
      costs[Collective::all_gather] += z.gather(l);
    }
    inputs -= z.a(l);
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

/// `zero3-keep`: one gather of all weights a step, 2 P (N-1)/N elements in all.
///
/// Most held: all weights, whole, at the end of the forward pass; on the way back they are freed one by one.
inline Costs zero3_keep_costs(const Setting& s) {
  const ShardedSizes z(s);
  Costs costs = costs_of_shards(z);
  const Index shards = z.mine();
  Peak peak;
  Index inputs = z.inputs(z.b), whole = z.P;
  for (Index l = 0; l < z.L; ++l) costs[Collective::all_gather] += z.gather(l);
  peak.at({shards, whole, inputs, z.a(z.L), z.a(z.L)});
  Index dw = 0;
  for (Index l = z.L - 1; l >= 0; --l) {
    peak.at({shards, whole, inputs, z.a(l + 1), dw, z.w(l), z.buffer(l)});
    dw += z.mine(l);
    peak.at({shards, whole, inputs, z.a(l + 1), dw, z.goes_on(l) ? z.a(l) : 0});
    whole -= z.w(l);
    inputs -= z.a(l);
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

/// `zero3-prefetch`: what `zero3` sends.
///
/// Most held: two layers' weights forward; on the way back also two layers' gradients, one of them being
/// reduced.
inline Costs zero3_prefetch_costs(const Setting& s) {
  const ShardedSizes z(s);
  Costs costs = costs_of_shards(z);
  const Index shards = z.mine();
  Peak peak;
  Index inputs = 0;
  for (Index l = 0; l < z.L; ++l) {
    inputs += z.a(l);
    peak.at({shards, inputs, z.w(l), l + 1 < z.L ? z.w(l + 1) : 0, z.a(l + 1)});
    costs[Collective::all_gather] += z.gather(l);
  }
  peak.at({shards, inputs, z.a(z.L), z.a(z.L)});
  Index dw = 0;       // my rows of the gradients that have been waited for
  Index leaving = 0;  // one that is being reduced, with its buffer
  for (Index l = z.L - 1; l >= 0; --l) {
    const Index w = z.goes_on(l) ? z.w(l) : 0;
    const Index next = l > 0 && z.goes_on(l - 1) ? z.w(l - 1) : 0;
    const Index da = z.goes_on(l) ? z.a(l) : 0;
    peak.at({shards, inputs, z.a(l + 1), w, next, dw, leaving, z.w(l), da});
    if (l + 1 < z.L) dw += z.mine(l + 1);
    leaving = z.w(l) + z.buffer(l);
    peak.at({shards, inputs, z.a(l + 1), next, dw, leaving, da});
    inputs -= z.a(l);
    if (z.goes_on(l)) costs[Collective::all_gather] += z.gather(l);
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

}  // namespace shard
