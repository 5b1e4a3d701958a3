#pragma once

#include "engine/costs.hpp"

namespace shard {

/// What one device sends, computes and holds.
///
/// f is my part of the hidden width F; x = B D and h = B f the elements of a block's input and of my part of its
/// hidden activation; w = D f those of either of my weights in a block.
inline Costs tensor_parallel_costs(const Setting& s) {
  const Index B = s.batch;
  const Index D = s.model.model_dim;
  const Index F = s.model.hidden_dim;
  const Index f = part(F, s.devices, s.device).size();
  const Index x = B * D, h = B * f, w = D * f;
  const Index blocks = s.model.num_layers / 2;
  const bool has_last = s.model.num_layers % 2 == 1;
  const Index P = s.model.num_layers * w;
  const Index buffer = ring_buffer(x, s.devices);
  Costs costs;
  costs.parameter_bytes = P * bytes_per_element;

  // One all-reduce of a (B, D) activation per block forward, and one backward: not for dL/dx of the first block
  // unless it is wanted. An odd depth gathers (B, F) at its end.
  const Index backward_reductions = blocks + (has_last ? 1 : 0) - (s.input_grad ? 0 : 1);
  costs[Collective::all_reduce] = (blocks + backward_reductions) * ring_all_reduce(x, s.devices, s.device);
  if (has_last) costs[Collective::all_gather] = ring_all_gather(slices(F, B, s.devices), s.device);
  // All products have the extents B, D and f: three a layer, but dL/dx of the first only when it is wanted.
  costs.flops = (3 * s.model.num_layers - (s.input_grad ? 0 : 1)) * product_flops(B, D, f);

  // Forward: all blocks' activations, the output, and a gradient as large for the loss.
  Index kept = blocks * (x + h) + (has_last ? x : 0);
  const Index out = has_last ? B * F : x;
  Peak peak;
  peak.at({P, kept, out, out});
  Index dw = 0;
  if (has_last) {
    dw += w;
    peak.at({P, kept, out, h, dw});  // dL/dout whole, and my columns of it
    kept -= x;
    if (blocks > 0 || s.input_grad) peak.at({P, kept, h, dw, x, buffer});  // dL/dx, being reduced
  }
  // Backward through a block: d, dz, the weights' gradients, and dL/dx being reduced beside d.
  for (Index i = blocks - 1; i >= 0; --i) {
    dw += 2 * w;
    peak.at({P, kept, x, h, dw});
    if (i > 0 || s.input_grad) peak.at({P, kept, x, h, dw, x, buffer});
    kept -= x + h;
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

}  // namespace shard
