#pragma once

#include "engine/costs.hpp"

namespace shard {

/// What one device sends, computes and holds.
///
/// w_l are the elements of layer l's weights, P their sum; b is my part of the batch, processed in pieces of b_m
/// rows; a_l = b_m D or b_m F the elements of layer l's input.
inline Costs data_parallel_costs(const Setting& s) {
  const Model& m = s.model;
  const Index P = m.weights();
  const Index L = m.num_layers;
  const Index b = part(s.batch, s.devices, s.device).size();
  const bool in_pieces = s.micro_batches > 1;
  Costs costs;
  costs.parameter_bytes = P * bytes_per_element;

  // One all-reduce per parameter, whatever the batch: about 2 P (N-1)/N elements.
  Index buffer = 0;
  for (Index l = 0; l < L; ++l) {
    costs[Collective::all_reduce] += ring_all_reduce(m.weights(l), s.devices, s.device);
    buffer = std::max(buffer, ring_buffer(m.weights(l), s.devices));
    costs.flops += (l > 0 || s.input_grad ? 3 : 2) * product_flops(b, m.width(l), m.width(l + 1));
  }

  // In pieces, my whole input stays, and the pieces of dL/dx are put together beside it.
  const Index x = in_pieces ? b * m.width(0) : 0;
  const Index dx = in_pieces && s.input_grad ? b * m.width(0) : 0;
  Peak peak;
  for (int piece = 0; piece < s.micro_batches; ++piece) {
    const Index rows = part(b, static_cast<int>(s.micro_batches), piece).size();
    auto a = [&](Index l) { return rows * m.width(l); };
    Index inputs = 0;
    for (Index l = 0; l < L; ++l) inputs += a(l);
    Index dw = piece == 0 ? 0 : P;  // the sums so far
    peak.at({P, x, dx, dw, inputs, a(L), a(L)});
    for (Index l = L - 1; l >= 0; --l) {
      // The first piece's addend is the sum; a later one lies beside it until it is added.
      Index addend = piece == 0 ? 0 : m.weights(l);
      if (piece == 0) dw += m.weights(l);
      peak.at({P, x, dx, dw, addend, inputs, a(l + 1), l > 0 || s.input_grad ? a(l) : 0});
      inputs -= a(l);
    }
  }
  // The reduction: all gradients, a ring's buffer, and what is kept beside them.
  peak.at({P, P, buffer, x, s.input_grad ? b * m.width(0) : 0});
  costs.peak_bytes = peak.bytes();
  return costs;
}

}  // namespace shard
