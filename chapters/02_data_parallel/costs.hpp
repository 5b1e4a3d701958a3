#pragma once

#include <vector>

#include "engine/workloads/mlp/mlp.hpp"

namespace shard::data_parallel {

/// Operations of a data parallel device in any variant: three products of one size for each layer, on this
/// device's rows. Layer 0's dL/dx counts only when it is wanted.
inline Index data_parallel_flops(const MlpSetting& s) {
  const Index b = part(s.batch, s.devices, s.device).size();
  Index flops = 0;
  for (Index l = 0; l < s.model.num_layers; ++l)
    flops += (l > 0 || s.input_grad ? 3 : 2) * product_flops(b, s.model.width(l), s.model.width(l + 1));
  return flops;
}

/// Elements that the forward pass keeps: the inputs of all layers, for this many rows.
inline Index kept_inputs(const Model& m, Index rows) {
  Index elements = 0;
  for (Index l = 0; l < m.num_layers; ++l) elements += rows * m.width(l);
  return elements;
}

/// The most that a device holds in the `all-reduce` variant. Each gradient is reduced in place, as soon as it is
/// computed, beside a ring's buffer. Then dL/da is made.
inline Peak data_parallel_peak(const MlpSetting& s) {
  const Model& m = s.model;
  const Index P = m.weights();
  const Index L = m.num_layers;
  const Index b = part(s.batch, s.devices, s.device).size();
  auto a = [&](Index l) { return b * m.width(l); };
  Index inputs = kept_inputs(m, b);
  Index dw = 0;
  Peak peak;
  peak.at({P, inputs, a(L), a(L)});
  for (Index l = L - 1; l >= 0; --l) {
    dw += m.weights(l);
    peak.at({P, inputs, a(l + 1), dw, ring_buffer(m.weights(l), s.devices)});
    peak.at({P, inputs, a(l + 1), dw, l > 0 || s.input_grad ? a(l) : 0});
    inputs -= a(l);
  }
  return peak;
}

/// `all-reduce`: what one device sends, computes and holds.
inline Costs data_parallel_costs(const MlpSetting& s) {
  Costs costs;
  costs.parameter_bytes = s.model.weights() * bytes_per_element;
  costs.flops = data_parallel_flops(s);
  // One all-reduce per parameter, for any batch size: about 2 P (N-1)/N elements.
  for (Index l = 0; l < s.model.num_layers; ++l)
    costs[Collective::all_reduce] += ring_all_reduce(s.model.weights(l), s.devices, s.device);
  costs.peak_bytes = data_parallel_peak(s).bytes();
  return costs;
}

/// The most that a device holds in the `accumulated` variant while it works on its rows in pieces.
///
/// P are the elements of all weights, a_l those of layer l's input. With pieces, the device holds its whole
/// input until the end, and beside it the dL/dx that it puts together.
inline Peak accumulated_peak(const MlpSetting& s, Index micro_batches) {
  const Model& m = s.model;
  const Index P = m.weights();
  const Index L = m.num_layers;
  const Index b = part(s.batch, s.devices, s.device).size();
  const Index x = micro_batches > 1 ? b * m.width(0) : 0;
  const Index dx = s.input_grad ? x : 0;
  Peak peak;
  for (int piece = 0; piece < micro_batches; ++piece) {
    const Index rows = part(b, static_cast<int>(micro_batches), piece).size();
    auto a = [&](Index l) { return rows * m.width(l); };
    Index inputs = kept_inputs(m, rows);
    Index dw = piece == 0 ? 0 : P;  // the sums so far
    peak.at({P, x, dx, dw, inputs, a(L), a(L)});
    for (Index l = L - 1; l >= 0; --l) {
      // The first piece's addend is the sum; a later one lies beside it until it is added. Then dL/da is
      // made.
      const Index addend = piece == 0 ? 0 : m.weights(l);
      if (piece == 0) dw += m.weights(l);
      peak.at({P, x, dx, dw, inputs, a(l + 1), addend});
      peak.at({P, x, dx, dw, inputs, a(l + 1), l > 0 || s.input_grad ? a(l) : 0});
      inputs -= a(l);
    }
  }
  return peak;
}

/// `accumulated`: the same bytes as `all-reduce`, once a step, for any number of pieces.
inline Costs accumulated_costs(const MlpSetting& s, Index micro_batches) {
  const Model& m = s.model;
  const Index P = m.weights();
  const Index b = part(s.batch, s.devices, s.device).size();
  Costs costs = data_parallel_costs(s);
  Index buffer = 0;
  for (Index l = 0; l < m.num_layers; ++l) buffer = std::max(buffer, ring_buffer(m.weights(l), s.devices));
  Peak peak = accumulated_peak(s, micro_batches);
  // The reduction: all gradients, a ring's buffer, and dL/dx beside them. The input has gone.
  peak.at({P, P, buffer, s.input_grad ? b * m.width(0) : 0});
  costs.peak_bytes = peak.bytes();
  return costs;
}

/// Gradients that are reduced together.
struct BucketSize {
  Index elements = 0;
  Index gradients = 0;
};

/// The buckets of `bucketed`. It collects gradients from the last layer on, and reduces them when a bucket is
/// full.
inline std::vector<BucketSize> bucket_sizes(const MlpSetting& s, Index bucket_bytes) {
  std::vector<BucketSize> buckets;
  BucketSize filling;
  for (Index l = s.model.num_layers - 1; l >= 0; --l) {
    filling.elements += s.model.weights(l);
    ++filling.gradients;
    if (filling.elements * bytes_per_element < bucket_bytes && l > 0) continue;
    buckets.push_back(filling);
    filling = {};
  }
  return buckets;
}

/// The most that a device holds in `bucketed`: in the backward pass, more and more buckets are being reduced,
/// each with its ring's buffer.
inline Peak bucketed_peak(const MlpSetting& s, Index bucket_bytes) {
  const Model& m = s.model;
  const Index P = m.weights();
  const Index L = m.num_layers;
  const Index b = part(s.batch, s.devices, s.device).size();
  auto a = [&](Index l) { return b * m.width(l); };
  Index inputs = kept_inputs(m, b);
  Peak peak;
  peak.at({P, inputs, a(L), a(L)});
  Index in_flight = 0;
  Index l = L - 1;
  const std::vector<BucketSize> buckets = bucket_sizes(s, bucket_bytes);
  for (const BucketSize& bucket : buckets) {
    Index filling = 0;
    for (Index i = 1; i <= bucket.gradients; ++i, --l) {
      filling += m.weights(l);
      peak.at({P, inputs, a(l + 1), in_flight, filling});
      if (i == bucket.gradients) {  // full: several gradients are copied into a row
        peak.at({P, inputs, a(l + 1), in_flight, filling, i > 1 ? filling : 0});
        in_flight += filling + ring_buffer(filling, s.devices);
        filling = 0;
      }
      peak.at({P, inputs, a(l + 1), in_flight, filling, l > 0 || s.input_grad ? a(l) : 0});
      inputs -= a(l);
    }
  }
  // At the end the device waits for one bucket after the other, and copies each back into its gradients.
  for (const BucketSize& bucket : buckets) {
    in_flight -= ring_buffer(bucket.elements, s.devices);
    peak.at({P, in_flight, bucket.gradients > 1 ? bucket.elements : 0, s.input_grad ? a(0) : a(1)});
  }
  return peak;
}

/// `bucketed`: the same bytes as `all-reduce`, in fewer messages.
inline Costs bucketed_costs(const MlpSetting& s, Index bucket_bytes) {
  Costs costs;
  costs.parameter_bytes = s.model.weights() * bytes_per_element;
  costs.flops = data_parallel_flops(s);
  for (const BucketSize& bucket : bucket_sizes(s, bucket_bytes))
    costs[Collective::all_reduce] += ring_all_reduce(bucket.elements, s.devices, s.device);
  costs.peak_bytes = bucketed_peak(s, bucket_bytes).bytes();
  return costs;
}

}  // namespace shard::data_parallel
