#pragma once

#include <utility>
#include <vector>

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

/// The same in buckets: gradients from the last layer on, sent off together when they fill a bucket.
inline Costs bucketed_costs(const Setting& s) {
  const Model& m = s.model;
  const Index P = m.weights();
  const Index L = m.num_layers;
  const Index b = part(s.batch, s.devices, s.device).size();
  auto a = [&](Index l) { return b * m.width(l); };
  Costs costs;
  costs.parameter_bytes = P * bytes_per_element;
  Index inputs = 0;
  for (Index l = 0; l < L; ++l) {
    costs.flops += (l > 0 || s.input_grad ? 3 : 2) * product_flops(b, m.width(l), m.width(l + 1));
    inputs += a(l);
  }

  Peak peak;
  peak.at({P, inputs, a(L), a(L)});
  std::vector<std::pair<Index, Index>> buckets;  // elements, and how many gradients
  Index filling = 0;                             // elements in the bucket that is being filled,
  Index gradients = 0;                           // and how many gradients they are
  Index in_flight = 0;                           // buckets sent off, each with its ring's buffer
  for (Index l = L - 1; l >= 0; --l) {
    filling += m.weights(l);
    ++gradients;
    peak.at({P, inputs, a(l + 1), in_flight, filling});
    if (filling * bytes_per_element >= s.bucket_bytes || l == 0) {
      costs[Collective::all_reduce] += ring_all_reduce(filling, s.devices, s.device);
      peak.at({P, inputs, a(l + 1), in_flight, filling, gradients > 1 ? filling : 0});  // copied into a row
      in_flight += filling + ring_buffer(filling, s.devices);
      peak.at({P, inputs, a(l + 1), in_flight});
      buckets.emplace_back(filling, gradients);
      filling = gradients = 0;
    }
    peak.at({P, inputs, a(l + 1), in_flight, filling, l > 0 || s.input_grad ? a(l) : 0});
    inputs -= a(l);
  }
  // At the end they are waited for one by one, and rows copied back into gradients.
  const Index d = s.input_grad ? a(0) : a(1);
  for (const auto& [elements, count] : buckets) {
    peak.at({P, in_flight, d});
    in_flight -= ring_buffer(elements, s.devices);
    peak.at({P, in_flight, count > 1 ? elements : 0, d});
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

/// The original form, from device 0 and back: what device 0 sends, receives and holds grows with N.
inline Costs scatter_gather_costs(const Setting& s) {
  const Model& m = s.model;
  const Index P = m.weights();
  const Index L = m.num_layers;
  const Index B = s.batch;
  const Index b = part(B, s.devices, s.device).size();
  auto a = [&](Index l) { return b * m.width(l); };
  auto message = [](Index elements) {
    return elements > 0 ? Traffic{1, elements * bytes_per_element} : Traffic{};
  };
  const bool is_root = s.device == 0;
  Costs costs;
  costs.parameter_bytes = is_root ? P * bytes_per_element : 0;
  Traffic& sent = costs[Collective::send];
  // Device 0 sends each other device the model and its rows of input and dL/dout; it gets back their rows of the
  // output, an addend of each gradient, and rows of dL/dx.
  for (int k = 1; k < s.devices && is_root; ++k) {
    const Index rows = part(B, s.devices, k).size();
    for (Index l = 0; l < L; ++l) sent += message(m.weights(l));
    sent += message(rows * m.width(0)) + message(rows * m.width(L));
  }
  if (!is_root) {
    for (Index l = 0; l < L; ++l) sent += message(m.weights(l));
    sent += message(a(L)) + (s.input_grad ? message(a(0)) : Traffic{});
  }

  Index inputs = 0;
  for (Index l = 0; l < L; ++l) {
    costs.flops += (l > 0 || s.input_grad ? 3 : 2) * product_flops(b, m.width(l), m.width(l + 1));
    inputs += a(l);
  }
  Peak peak;  // P is device 0's own, or the copy that another device was sent
  peak.at({P, is_root ? B * m.width(0) : 0, a(0)});
  peak.at({P, inputs, a(L)});
  // Device 0 puts the output together, and holds it, whole, beside dL/dout.
  if (is_root) peak.at({P, inputs, B * m.width(L), B * m.width(L)});
  Index dw = 0;
  for (Index l = L - 1; l >= 0; --l) {
    dw = is_root ? dw + m.weights(l) : m.weights(l);  // device 0 keeps the sums, others send and forget
    peak.at({P, inputs, a(l + 1), dw, is_root && s.devices > 1 ? m.weights(l) : 0});
    peak.at({P, inputs, a(l + 1), is_root ? dw : 0, l > 0 || s.input_grad ? a(l) : 0});
    inputs -= a(l);
  }
  if (is_root && s.input_grad) peak.at({P, P, B * m.width(0), B * m.width(0)});
  costs.peak_bytes = peak.bytes();
  return costs;
}

}  // namespace shard
