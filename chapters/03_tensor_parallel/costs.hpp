#pragma once

#include <vector>

#include "engine/workloads/mlp.hpp"

namespace shard::tensor_parallel {

/// Extents and sizes, in elements, from which this chapter's forms are made. B rows, model width D, hidden
/// width F; b, d and f are this device's parts of them.
struct TensorParallelSizes {
  Index B, D, F, b, d, f;
  Index blocks;   ///< pairs of layers
  bool has_last;  ///< a layer more, of odd depth
  bool is_alone;

  explicit TensorParallelSizes(const MlpSetting& s)
      : B(s.batch),
        D(s.model.model_dim),
        F(s.model.hidden_dim),
        b(part(B, s.devices, s.device).size()),
        d(part(D, s.devices, s.device).size()),
        f(part(F, s.devices, s.device).size()),
        blocks(s.model.num_layers / 2),
        has_last(s.model.num_layers % 2 == 1),
        is_alone(s.devices == 1) {}

  /// Three products of one size for each layer, but dL/dx of the first only when it is wanted.
  Index flops(const MlpSetting& s, Index of_product) const {
    return (3 * s.model.num_layers - (s.input_grad ? 0 : 1)) * of_product;
  }
};

/// Most held in the column-row form. x = B D and h = B f are a block's input and my part of its hidden
/// activation; w = D f either of my weights in a block; P all of them.
inline Peak tensor_parallel_peak(const MlpSetting& s, const TensorParallelSizes& z) {
  const Index x = z.B * z.D, h = z.B * z.f, w = z.D * z.f;
  const Index P = s.model.num_layers * w;
  const Index buffer = ring_buffer(x, s.devices);
  const Index out = z.has_last ? z.B * z.F : x;
  // Forward: all blocks' activations, the output, and a gradient as large for the loss.
  Index kept = z.blocks * (x + h) + (z.has_last ? x : 0);
  Peak peak;
  peak.at({P, kept, out, out});
  Index dw = 0;
  if (z.has_last) {
    dw += w;
    peak.at({P, kept, out, h, dw});  // dL/dout whole, and my columns of it
    kept -= x;
    if (z.blocks > 0 || s.input_grad) peak.at({P, kept, h, dw, x, buffer});  // dL/dx, being reduced
  }
  // Backward through a block: d, dz, the weights' gradients, and dL/dx being reduced beside d.
  for (Index i = z.blocks - 1; i >= 0; --i) {
    dw += 2 * w;
    peak.at({P, kept, x, h, dw});
    if (i > 0 || s.input_grad) peak.at({P, kept, x, h, dw, x, buffer});
    kept -= x + h;
  }
  return peak;
}

/// `column-row`: what one device sends, computes and holds.
inline Costs tensor_parallel_costs(const MlpSetting& s) {
  const TensorParallelSizes z(s);
  Costs costs;
  costs.parameter_bytes = s.model.num_layers * z.D * z.f * bytes_per_element;
  costs.flops = z.flops(s, product_flops(z.B, z.D, z.f));
  // One all-reduce of a (B, D) activation per block forward, and one backward: not for dL/dx of the first
  // block unless it is wanted. An odd depth gathers (B, F) at its end.
  const Index backward_reductions = z.blocks + (z.has_last ? 1 : 0) - (s.input_grad ? 0 : 1);
  costs[Collective::all_reduce] =
      (z.blocks + backward_reductions) * ring_all_reduce(z.B * z.D, s.devices, s.device);
  if (z.has_last) costs[Collective::all_gather] = ring_all_gather(slices(z.F, z.B, s.devices), s.device);
  costs.peak_bytes = tensor_parallel_peak(s, z).bytes();
  return costs;
}

/// Most held in the sequence form: activations between blocks are my b rows only. x = b D and X = B D are my
/// rows of a block's input and all of them; h, w and P as above.
inline Peak sequence_peak(const MlpSetting& s, const TensorParallelSizes& z) {
  const Index x = z.b * z.D, X = z.B * z.D, h = z.B * z.f, w = z.D * z.f;
  const Index P = s.model.num_layers * w;
  const Index buffer = z.is_alone ? 0 : slices(z.B, z.D, s.devices)[0];  // of the reduce-scatter
  const Index out = z.has_last ? z.b * z.F : x;
  Index kept = z.blocks * (x + h) + (z.has_last ? x : 0);
  Peak peak;
  if (z.blocks > 0)
    peak.at({P, kept - (z.has_last ? x : 0), X, buffer});  // input gathered; output being reduced
  if (z.has_last) peak.at({P, kept, X, h});
  if (z.has_last && !z.is_alone) peak.at({P, kept, h, out});  // all-to-all
  peak.at({P, kept, out, out});
  Index dw = 0;
  if (z.has_last) {
    dw += w;
    if (!z.is_alone) peak.at({P, kept, out, h});  // all-to-all
    peak.at({P, kept, h, X, dw});
    kept -= x;
    if (z.blocks > 0 || s.input_grad) peak.at({P, kept, h, dw, X, buffer});
  }
  for (Index i = z.blocks - 1; i >= 0; --i) {
    if (!z.is_alone) peak.at({P, kept, x, X, dw});  // dL/dout being gathered
    dw += 2 * w;
    peak.at({P, kept, h, X, dw});
    if (i > 0 || s.input_grad) peak.at({P, kept, h, dw, X, buffer});
    kept -= x + h;
  }
  return peak;
}

/// `sequence`: forward, a gather and a reduce-scatter per block, the two halves of an all-reduce. Backward
/// one more gather, as only my rows of the input were kept. An odd depth changes rows for columns at its end,
/// and back.
inline Costs sequence_costs(const MlpSetting& s) {
  const TensorParallelSizes z(s);
  Costs costs;
  costs.parameter_bytes = s.model.num_layers * z.D * z.f * bytes_per_element;
  costs.flops = z.flops(s, product_flops(z.B, z.D, z.f));
  const std::vector<Index> rows = slices(z.B, z.D, s.devices);
  const Index layers_with_gather = z.blocks + (z.has_last ? 1 : 0);
  const Index scatters = z.blocks + layers_with_gather - (s.input_grad ? 0 : 1);
  costs[Collective::all_gather] = (2 * layers_with_gather + z.blocks) * ring_all_gather(rows, s.device);
  costs[Collective::reduce_scatter] = scatters * ring_reduce_scatter(rows, s.device);
  if (z.has_last)
    costs[Collective::all_to_all] = pairwise_all_to_all(slices(z.B, z.f, s.devices), s.device) +
                                    pairwise_all_to_all(slices(z.F, z.b, s.devices), s.device);
  costs.peak_bytes = sequence_peak(s, z).bytes();
  return costs;
}

/// Most held with the other cut. x = B d are my columns of a block's input, X = B D all of them; H = B F is
/// the hidden activation, whole on every device; w = d F.
inline Peak row_column_peak(const MlpSetting& s, const TensorParallelSizes& z) {
  const Index x = z.B * z.d, X = z.B * z.D, H = z.B * z.F, w = z.d * z.F;
  const Index P = s.model.num_layers * w;
  const Index buffer = ring_buffer(H, s.devices);
  const Index out = z.has_last ? H : X;
  Index kept = z.blocks * (x + H) + (z.has_last ? x : 0);
  Peak peak;
  peak.at({P, X, x});  // the input whole, and my columns of it
  if (z.has_last) peak.at({P, kept, H, buffer});
  if (z.blocks > 0)
    peak.at({P, kept - (z.has_last ? x : 0), std::max(buffer, x)});  // z being reduced; output
  peak.at({P, kept, out, out});
  Index dw = z.has_last ? w : 0;
  if (z.has_last) {
    peak.at({P, kept, H, dw, z.blocks > 0 || s.input_grad ? x : 0});
    kept -= x;
  } else {
    peak.at({P, kept, X, x});
  }
  for (Index i = z.blocks - 1; i >= 0; --i) {
    dw += w;
    peak.at({P, kept, x, dw, H, buffer});  // d, and dh being reduced
    dw += w;
    peak.at({P, kept, x, dw, H, i > 0 || s.input_grad ? x : 0});
    kept -= x + H;
  }
  return peak;
}

/// `row-column`: all-reduces of (B, F): one per block forward, one backward, also in the first. The end
/// gathers columns, or, of an odd depth, reduces.
inline Costs row_column_costs(const MlpSetting& s) {
  const TensorParallelSizes z(s);
  Costs costs;
  costs.parameter_bytes = s.model.num_layers * z.d * z.F * bytes_per_element;
  costs.flops = z.flops(s, product_flops(z.B, z.d, z.F));
  const Index reductions = 2 * z.blocks + (z.has_last ? 1 : 0);
  costs[Collective::all_reduce] = reductions * ring_all_reduce(z.B * z.F, s.devices, s.device);
  if (!z.has_last) costs[Collective::all_gather] = ring_all_gather(slices(z.D, z.B, s.devices), s.device);
  costs.peak_bytes = row_column_peak(s, z).bytes();
  return costs;
}

}  // namespace shard::tensor_parallel
