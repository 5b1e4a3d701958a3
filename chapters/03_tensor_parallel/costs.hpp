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

/// The sequence form: activations between blocks are my b rows only.
///
/// x = b D and X = B D are my rows of a block's input and all of them; h, w as above.
inline Costs sequence_costs(const Setting& s) {
  const Index B = s.batch;
  const Index D = s.model.model_dim;
  const Index F = s.model.hidden_dim;
  const Index b = part(B, s.devices, s.device).size();
  const Index f = part(F, s.devices, s.device).size();
  const Index x = b * D, X = B * D, h = B * f, w = D * f;
  const Index blocks = s.model.num_layers / 2;
  const bool has_last = s.model.num_layers % 2 == 1;
  const bool is_alone = s.devices == 1;
  const Index P = s.model.num_layers * w;
  const std::vector<Index> rows = slices(B, D, s.devices);
  const Index buffer = is_alone ? 0 : rows[0];  // of the reduce-scatter
  Costs costs;
  costs.parameter_bytes = P * bytes_per_element;
  costs.flops = (3 * s.model.num_layers - (s.input_grad ? 0 : 1)) * product_flops(B, D, f);

  // Forward, a gather and a reduce-scatter per block: the two halves of an all-reduce. Backward one more gather, as
  // only my rows of the input were kept. An odd depth changes rows for columns at its end, and back.
  const Index layers_with_gather = blocks + (has_last ? 1 : 0);
  const Index scatters = blocks + layers_with_gather - (s.input_grad ? 0 : 1);
  costs[Collective::all_gather] = (2 * layers_with_gather + blocks) * ring_all_gather(rows, s.device);
  costs[Collective::reduce_scatter] = scatters * ring_reduce_scatter(rows, s.device);
  if (has_last)
    costs[Collective::all_to_all] = pairwise_all_to_all(slices(B, f, s.devices), s.device) +
                                    pairwise_all_to_all(slices(F, b, s.devices), s.device);

  Peak peak;
  Index kept = 0;
  for (Index i = 0; i < blocks; ++i) {
    kept += x + h;
    peak.at({P, kept, X, buffer});  // the input gathered, later the output being reduced
  }
  const Index out = has_last ? b * F : x;
  if (has_last) {
    kept += x;
    peak.at({P, kept, X, h});
    if (!is_alone) peak.at({P, kept, h, out});  // all-to-all
  }
  peak.at({P, kept, out, out});
  Index dw = 0;
  if (has_last) {
    dw += w;
    if (!is_alone) peak.at({P, kept, out, h});  // all-to-all
    peak.at({P, kept, h, X, dw});
    kept -= x;
    if (blocks > 0 || s.input_grad) peak.at({P, kept, h, dw, X, buffer});
  }
  for (Index i = blocks - 1; i >= 0; --i) {
    if (!is_alone) peak.at({P, kept, x, X, dw});  // dL/dout being gathered
    dw += w;
    peak.at({P, kept, X, h, dw});
    dw += w;
    peak.at({P, kept, h, X, dw});
    if (i > 0 || s.input_grad) peak.at({P, kept, h, dw, X, buffer});
    kept -= x + h;
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

/// The other cut. d is my part of the model's width D; x = B d, X = B D, and H = B F the hidden activation, whole on
/// every device; w = d F.
inline Costs row_column_costs(const Setting& s) {
  const Index B = s.batch;
  const Index D = s.model.model_dim;
  const Index F = s.model.hidden_dim;
  const Index d = part(D, s.devices, s.device).size();
  const Index x = B * d, X = B * D, H = B * F, w = d * F;
  const Index blocks = s.model.num_layers / 2;
  const bool has_last = s.model.num_layers % 2 == 1;
  const Index P = s.model.num_layers * w;
  const Index buffer = ring_buffer(H, s.devices);
  Costs costs;
  costs.parameter_bytes = P * bytes_per_element;
  costs.flops = (3 * s.model.num_layers - (s.input_grad ? 0 : 1)) * product_flops(B, d, F);
  // All-reduces of (B, F): one per block forward, one backward, also in the first. The end gathers columns, or, of an
  // odd depth, reduces.
  costs[Collective::all_reduce] = (2 * blocks + (has_last ? 1 : 0)) * ring_all_reduce(H, s.devices, s.device);
  if (!has_last) costs[Collective::all_gather] = ring_all_gather(slices(D, B, s.devices), s.device);

  Peak peak;
  peak.at({P, X, x});  // the input whole, and my columns of it
  Index kept = 0;
  for (Index i = 0; i < blocks; ++i) {
    kept += x + H;
    peak.at({P, kept, std::max(buffer, x)});  // z being reduced, later my columns of the output
  }
  if (has_last) {
    kept += x;
    peak.at({P, kept, H, buffer});
  }
  const Index out = has_last ? H : X;
  peak.at({P, kept, out, out});
  Index dw = 0;
  if (has_last) {
    dw += w;
    peak.at({P, kept, H, dw, blocks > 0 || s.input_grad ? x : 0});
    kept -= x;
  } else {
    peak.at({P, kept, X, x});
  }
  for (Index i = blocks - 1; i >= 0; --i) {
    dw += w;
    peak.at({P, kept, x, dw, H, buffer});  // d, and dh being reduced
    dw += w;
    peak.at({P, kept, x, dw, H, i > 0 || s.input_grad ? x : 0});
    kept -= x + H;
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

}  // namespace shard
