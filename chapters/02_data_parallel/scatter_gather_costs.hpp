#pragma once

#include "costs.hpp"

namespace shard::data_parallel {

/// The most that a device holds in `scatter-gather`. P is device 0's model, or another device's copy of it.
inline Peak scatter_gather_peak(const MlpSetting& s) {
  const Model& m = s.model;
  const Index P = m.weights();
  const Index L = m.num_layers;
  const Index B = s.batch;
  const Index b = part(B, s.devices, s.device).size();
  const bool is_root = s.device == 0;
  auto a = [&](Index l) { return b * m.width(l); };
  Index inputs = kept_inputs(m, b);
  Peak peak;
  peak.at({P, is_root ? B * m.width(0) : 0, a(0)});
  peak.at({P, inputs, a(L)});
  // Device 0 puts the output together, and holds the whole output beside dL/dout.
  if (is_root) peak.at({P, inputs, B * m.width(L), B * m.width(L)});
  Index dw = 0;
  for (Index l = L - 1; l >= 0; --l) {
    dw = is_root ? dw + m.weights(l) : m.weights(l);  // device 0 keeps the sums; others send and free
    peak.at({P, inputs, a(l + 1), dw, is_root && s.devices > 1 ? m.weights(l) : 0});
    peak.at({P, inputs, a(l + 1), is_root ? dw : 0, l > 0 || s.input_grad ? a(l) : 0});
    inputs -= a(l);
  }
  if (is_root && s.input_grad) peak.at({P, P, B * m.width(0), B * m.width(0)});
  return peak;
}

/// `scatter-gather`: what device 0 sends grows with N. It sends each other device the model and its rows of
/// input and dL/dout; it gets back their rows of the output, an addend of each gradient, and rows of dL/dx.
inline Costs scatter_gather_costs(const MlpSetting& s) {
  const Model& m = s.model;
  const Index L = m.num_layers;
  auto message = [](Index elements) {
    return elements > 0 ? Traffic{1, elements * bytes_per_element} : Traffic{};
  };
  Costs costs;
  costs.parameter_bytes = s.device == 0 ? m.weights() * bytes_per_element : 0;
  costs.flops = data_parallel_flops(s);
  costs.peak_bytes = scatter_gather_peak(s).bytes();
  Traffic& sent = costs[Collective::send];
  for (int k = 1; k < s.devices; ++k) {
    if (s.device != 0 && s.device != k) continue;
    const Index rows = part(s.batch, s.devices, k).size();
    for (Index l = 0; l < L; ++l) sent += message(m.weights(l));
    if (s.device == 0)
      sent += message(rows * m.width(0)) + message(rows * m.width(L));
    else
      sent += message(rows * m.width(L)) + (s.input_grad ? message(rows * m.width(0)) : Traffic{});
  }
  return costs;
}

}  // namespace shard::data_parallel
