#pragma once

#include <vector>

#include "engine/workloads/mlp/mlp.hpp"

namespace shard::tensor_parallel {

/// Extents and sizes, in elements, that this chapter's closed forms use. B rows, model width D, hidden width
/// F; b, d and f are this device's parts of them.
struct TensorParallelSizes {
  Index B, D, F, b, d, f;
  Index blocks;  ///< pairs of layers
  bool is_alone;

  explicit TensorParallelSizes(const MlpSetting& s)
      : B(s.batch),
        D(s.model.model_dim),
        F(s.model.hidden_dim),
        b(part(B, s.devices, s.device).size()),
        d(part(D, s.devices, s.device).size()),
        f(part(F, s.devices, s.device).size()),
        blocks(s.model.num_layers / 2),
        is_alone(s.devices == 1) {}

  /// Three products of one size for each layer, but dL/dx of the first only when it is wanted.
  Index flops(const MlpSetting& s, Index of_product) const {
    return (3 * s.model.num_layers - (s.input_grad ? 0 : 1)) * of_product;
  }
};

/// The most that a device holds in the column-row form. x = B D is a block's input and h = B f this device's
/// part of its hidden activation. w = D f is its part of either matrix of a block, P its part of all.
inline Peak tensor_parallel_peak(const MlpSetting& s, const TensorParallelSizes& z) {
  const Index x = z.B * z.D, h = z.B * z.f, w = z.D * z.f;
  const Index P = s.model.num_layers * w;
  const Index buffer = ring_buffer(x, s.devices);
  // Forward: all blocks' activations, the output, and a gradient as large for the loss.
  Index kept = z.blocks * (x + h);
  Peak peak;
  peak.at({P, kept, x, x});
  Index dw = 0;
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
  // For each block, one all-reduce of a (B, D) activation forward and one backward. The first block has the
  // second one only when dL/dx is wanted.
  const Index reductions = 2 * z.blocks - (s.input_grad ? 0 : 1);
  costs[Collective::all_reduce] = reductions * ring_all_reduce(z.B * z.D, s.devices, s.device);
  costs.peak_bytes = tensor_parallel_peak(s, z).bytes();
  return costs;
}

/// The most that a device holds in the sequence form. Between blocks it holds only its b rows of an
/// activation. x = b D are its rows of a block's input, X = B D all rows; h, w and P as above.
inline Peak sequence_peak(const MlpSetting& s, const TensorParallelSizes& z) {
  const Index x = z.b * z.D, X = z.B * z.D, h = z.B * z.f, w = z.D * z.f;
  const Index P = s.model.num_layers * w;
  const Index buffer = z.is_alone ? 0 : slices(z.B, z.D, s.devices)[0];  // of the reduce-scatter
  Index kept = z.blocks * (x + h);
  Peak peak;
  peak.at({P, kept, X, buffer});  // input gathered; output being reduced
  peak.at({P, kept, x, x});
  Index dw = 0;
  for (Index i = z.blocks - 1; i >= 0; --i) {
    if (!z.is_alone) peak.at({P, kept, x, X, dw});  // dL/dout being gathered
    dw += 2 * w;
    peak.at({P, kept, h, X, dw});
    if (i > 0 || s.input_grad) peak.at({P, kept, h, dw, X, buffer});
    kept -= x + h;
  }
  return peak;
}

/// `sequence`: for each block, an all-gather and a reduce-scatter forward, which are the two halves of an
/// all-reduce. Backward there is one more all-gather, since a device kept only its rows of the input.
inline Costs sequence_costs(const MlpSetting& s) {
  const TensorParallelSizes z(s);
  Costs costs;
  costs.parameter_bytes = s.model.num_layers * z.D * z.f * bytes_per_element;
  costs.flops = z.flops(s, product_flops(z.B, z.D, z.f));
  const std::vector<Index> rows = slices(z.B, z.D, s.devices);
  const Index scatters = 2 * z.blocks - (s.input_grad ? 0 : 1);
  costs[Collective::all_gather] = 3 * z.blocks * ring_all_gather(rows, s.device);
  costs[Collective::reduce_scatter] = scatters * ring_reduce_scatter(rows, s.device);
  costs.peak_bytes = sequence_peak(s, z).bytes();
  return costs;
}

/// The most that a device holds with the other cut. x = B d are its columns of a block's input, X = B D all
/// columns; H = B F is the hidden activation, whole on every device; w = d F.
inline Peak row_column_peak(const MlpSetting& s, const TensorParallelSizes& z) {
  const Index x = z.B * z.d, X = z.B * z.D, H = z.B * z.F, w = z.d * z.F;
  const Index P = s.model.num_layers * w;
  const Index buffer = ring_buffer(H, s.devices);
  Index kept = z.blocks * (x + H);
  Peak peak;
  peak.at({P, X, x});                       // the input whole, and my columns of it
  peak.at({P, kept, std::max(buffer, x)});  // z being reduced; output
  peak.at({P, kept, X, X});
  peak.at({P, kept, X, x});  // dL/dout whole, and my columns of it
  Index dw = 0;
  for (Index i = z.blocks - 1; i >= 0; --i) {
    dw += w;
    peak.at({P, kept, x, dw, H, buffer});  // d, and dh being reduced
    dw += w;
    peak.at({P, kept, x, dw, H, i > 0 || s.input_grad ? x : 0});
    kept -= x + H;
  }
  return peak;
}

/// `row-column`: for each block, also the first, one all-reduce of (B, F) forward and one backward. At the
/// end, all-gathers join columns.
inline Costs row_column_costs(const MlpSetting& s) {
  const TensorParallelSizes z(s);
  Costs costs;
  costs.parameter_bytes = s.model.num_layers * z.d * z.F * bytes_per_element;
  costs.flops = z.flops(s, product_flops(z.B, z.d, z.F));
  costs[Collective::all_reduce] = 2 * z.blocks * ring_all_reduce(z.B * z.F, s.devices, s.device);
  costs[Collective::all_gather] = ring_all_gather(slices(z.D, z.B, s.devices), s.device);
  costs.peak_bytes = row_column_peak(s, z).bytes();
  return costs;
}

}  // namespace shard::tensor_parallel
