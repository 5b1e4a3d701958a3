#pragma once

#include "engine/workloads/mlp/mlp.hpp"

namespace shard::single_device {

/// What the single device sends (nothing), computes and holds.
///
/// Write w_l = D F for the elements of layer l's weights, P for their sum, and a_l for those of layer l's
/// input, B D or B F; a_L is the output.
inline Costs single_device_costs(const MlpSetting& s) {
  const Model& m = s.model;
  auto a = [&](Index l) { return s.batch * m.width(l); };
  Costs costs;
  costs.parameter_bytes = m.weights() * bytes_per_element;

  // Three products of one size for each layer: a W, aᵀ d, d Wᵀ. The last one of layer 0, dL/dx, only when it
  // is wanted.
  for (Index l = 0; l < m.num_layers; ++l)
    costs.flops += (l > 0 || s.input_grad ? 3 : 2) * product_flops(s.batch, m.width(l), m.width(l + 1));

  // Forward keeps every layer's input. At its end, the loss adds a gradient as large as the output.
  const Index P = m.weights();
  Index inputs = 0;  // a_0 + ... + a_{l-1}
  for (Index l = 0; l < m.num_layers; ++l) inputs += a(l);
  Peak peak;
  peak.at({P, inputs, a(m.num_layers), a(m.num_layers)});
  // Backward through layer l holds the inputs up to a_l, the gradient d of its output, the new gradient of
  // its weights beside those of later layers, and then dL/da_l beside d.
  Index dw = 0;
  for (Index l = m.num_layers - 1; l >= 0; --l) {
    dw += m.weights(l);
    peak.at({P, inputs, a(l + 1), dw, l > 0 || s.input_grad ? a(l) : 0});
    inputs -= a(l);
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

}  // namespace shard::single_device
