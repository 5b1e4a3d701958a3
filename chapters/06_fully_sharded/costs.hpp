#pragma once

#include "sizes.hpp"

namespace shard::fully_sharded {

/// The common part of the first two stages: whole parameters, and a step that gathers them. During the
/// gather, a device holds its rows of a layer beside the parameters. It frees the old parameters of the layer
/// before the new ones arrive.
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

/// `zero1`: the gradients, P elements, are reduce-scattered, and the parameters, P elements, are gathered
/// after the step. Each sends P (N-1)/N elements, in all as many as data parallel.
///
/// Most held: whole addends until the end of the backward pass. With pieces, a device holds its whole input
/// until the end, and beside it the dL/dx that it puts together. The first piece's addend becomes the sum; a
/// later addend is held beside the sum until it has been added.
inline Costs zero1_costs(const MlpSetting& s, Index micro_batches, bool reduce_in_bf16 = false) {
  const ShardedSizes z(s, reduce_in_bf16);
  const Index x = micro_batches > 1 ? z.a(0) : 0;
  const Index dx = s.input_grad ? x : 0;
  Peak peak;
  for (int piece = 0; piece < micro_batches; ++piece) {
    const Index rows = part(z.b, static_cast<int>(micro_batches), piece).size();
    Index inputs = z.inputs(rows);
    Index dw = piece == 0 ? 0 : z.P;  // the sums so far
    peak.at({z.P, x, dx, dw, inputs, z.a(z.L, rows), z.a(z.L, rows)});
    for (Index l = z.L - 1; l >= 0; --l) {
      if (piece == 0) dw += z.w(l);
      peak.at({z.P, x, dx, dw, inputs, z.a(l + 1, rows), piece == 0 ? 0 : z.w(l)});
      peak.at({z.P, x, dx, dw, inputs, z.a(l + 1, rows), z.goes_on(l) ? z.a(l, rows) : 0});
      inputs -= z.a(l, rows);
    }
  }
  // The reduction: from the last layer on, whole addends become this device's rows of the sums.
  Costs costs = costs_of_whole_parameters(z);
  Index addends = z.P, sums = 0;
  for (Index l = z.L - 1; l >= 0; --l) {
    addends -= z.w(l);
    peak.at({z.P, s.input_grad ? z.a(0) : 0, addends, sums, z.reducing(l)});
    sums += z.mine(l);
    z.reduce(l, costs);
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

/// Forward and backward passes, piece by piece, that reduce each layer's gradient at once. Adds what they
/// send to `costs`. Beside activations, a device holds parameters, its rows of the sums, and one whole
/// matrix: the gradient that is being reduced or, if weights are gathered, the layer's weights.
inline Peak peak_reducing_at_once(const ShardedSizes& z, Index micro_batches, bool is_gathered,
                                  Costs& costs) {
  const Index parameters = is_gathered ? z.mine() : z.P;
  const Index x = micro_batches > 1 ? z.a(0) : 0;
  const Index dx = z.s.input_grad ? x : 0;
  Peak peak;
  Index dw = 0;  // my rows of the sums so far
  for (int piece = 0; piece < micro_batches; ++piece) {
    const Index rows = part(z.b, static_cast<int>(micro_batches), piece).size();
    Index inputs = 0;
    for (Index l = 0; l < z.L; ++l) {
      inputs += z.a(l, rows);
      const Index w = is_gathered ? z.gathered(l) : 0;
      if (is_gathered) peak.at({parameters, x, dx, dw, inputs, w, z.rounded(l)});
      peak.at({parameters, x, dx, dw, inputs, w, z.a(l + 1, rows)});
      if (is_gathered) costs[Collective::all_gather] += z.gather_factor(l);
    }
    peak.at({parameters, x, dx, dw, inputs, z.a(z.L, rows), z.a(z.L, rows)});
    for (Index l = z.L - 1; l >= 0; --l) {
      peak.at({parameters, x, dx, dw, inputs, z.a(l + 1, rows), z.reducing(l)});
      z.reduce(l, costs);
      if (piece == 0) dw += z.mine(l);
      if (z.goes_on(l)) {
        const Index w = is_gathered ? z.gathered(l) : 0;
        if (is_gathered) peak.at({parameters, x, dx, dw, inputs, z.a(l + 1, rows), w, z.rounded(l)});
        peak.at({parameters, x, dx, dw, inputs, z.a(l + 1, rows), w, z.a(l, rows)});
        if (is_gathered) costs[Collective::all_gather] += z.gather_factor(l);
      }
      inputs -= z.a(l, rows);
    }
  }
  return peak;
}

/// `zero2`: with one piece, the same bytes as `zero1`. M pieces are reduced one by one, so a device sends
/// (M + 1) P (N-1)/N elements.
inline Costs zero2_costs(const MlpSetting& s, Index micro_batches, bool reduce_in_bf16 = false) {
  const ShardedSizes z(s, reduce_in_bf16);
  Costs costs = costs_of_whole_parameters(z);
  costs.peak_bytes = peak_reducing_at_once(z, micro_batches, /*is_gathered=*/false, costs).bytes();
  return costs;
}

/// The common part of the third stage's variants: parameters, gradients and state are divided alike. Below, P
/// and w stand for elements of float32. Where products round to bf16, gathers send and leave half as many.
inline Costs costs_of_shards(const ShardedSizes& z) {
  Costs costs;
  costs.flops = z.flops();
  costs.parameter_bytes = z.mine() * bytes_per_element;
  return costs;
}

/// `zero3`: weights are gathered forward, and again backward where dL/dx is computed, and gradients are
/// reduce-scattered: 3 P (N-1)/N elements for each piece. If dL/dx is not wanted, layer 0 is gathered once.
inline Costs zero3_costs(const MlpSetting& s, Index micro_batches, bool reduce_in_bf16 = false) {
  const ShardedSizes z(s, reduce_in_bf16);
  Costs costs = costs_of_shards(z);
  costs.peak_bytes = peak_reducing_at_once(z, micro_batches, /*is_gathered=*/true, costs).bytes();
  return costs;
}

/// `zero3-keep`: all weights are gathered once in a step. With the gradients, these are 2 P (N-1)/N elements.
///
/// Most held: all weights, whole, at the end of the forward pass. The backward pass frees them one by one.
inline Costs zero3_keep_costs(const MlpSetting& s, bool reduce_in_bf16 = false) {
  const ShardedSizes z(s, reduce_in_bf16);
  Costs costs = costs_of_shards(z);
  const Index shards = z.mine();
  Peak peak;
  Index inputs = 0, whole = 0;
  for (Index l = 0; l < z.L; ++l) {
    inputs += z.a(l);
    whole += z.gathered(l);
    peak.at({shards, whole, inputs, z.rounded(l)});
    costs[Collective::all_gather] += z.gather_factor(l);
    z.reduce(l, costs);
  }
  peak.at({shards, whole, inputs, z.a(z.L), z.a(z.L)});
  Index dw = 0;
  for (Index l = z.L - 1; l >= 0; --l) {
    peak.at({shards, whole, inputs, z.a(l + 1), dw, z.reducing(l)});
    dw += z.mine(l);
    peak.at({shards, whole, inputs, z.a(l + 1), dw, z.goes_on(l) ? z.a(l) : 0});
    whole -= z.gathered(l);
    inputs -= z.a(l);
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

/// `zero3-prefetch` sends the same as `zero3`.
///
/// Most held: two layers' weights in the forward pass. In the backward pass, also two layers' gradients, of
/// which one is being reduced.
inline Costs zero3_prefetch_costs(const MlpSetting& s) {
  const ShardedSizes z(s);
  Costs costs = costs_of_shards(z);
  const Index shards = z.mine();
  Peak peak;
  Index inputs = 0;
  for (Index l = 0; l < z.L; ++l) {
    inputs += z.a(l);
    const bool is_last = l + 1 == z.L;
    if (l == 0) peak.at({shards, inputs, z.gathered(0), z.rounded(0)});
    peak.at({shards, inputs, z.gathered(l), is_last ? 0 : z.gathered(l + 1) + z.rounded(l + 1), z.a(l + 1)});
    costs[Collective::all_gather] += z.gather_factor(l);
    z.reduce(l, costs);
  }
  peak.at({shards, inputs, z.a(z.L), z.a(z.L)});
  Index dw = 0;       // this device's rows of the gradients whose reduction is done
  Index leaving = 0;  // the gradient that is being reduced, with its buffer
  for (Index l = z.L - 1; l >= 0; --l) {
    const Index w = z.goes_on(l) ? z.gathered(l) : 0;
    const Index next = l > 0 && z.goes_on(l - 1) ? z.gathered(l - 1) + z.rounded(l - 1) : 0;
    const Index da = z.goes_on(l) ? z.a(l) : 0;
    peak.at({shards, inputs, z.a(l + 1), w, next, dw, leaving, z.w(l), da});
    if (l + 1 < z.L) dw += z.mine(l + 1);
    leaving = z.reducing(l);
    peak.at({shards, inputs, z.a(l + 1), next, dw, leaving, da});
    inputs -= z.a(l);
    if (z.goes_on(l)) costs[Collective::all_gather] += z.gather_factor(l);
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

}  // namespace shard::fully_sharded
