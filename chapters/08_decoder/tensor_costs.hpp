#pragma once

#include "engine/workloads/decoder.hpp"
#include "layer_flops.hpp"
#include "tensor_options.hpp"
#include "tensor_weights.hpp"

namespace shard::decoders {

/// Extents that the closed forms of this variant use. There are T = B S tokens, S of each of B sequences, and
/// t of them are this device's rows. D is the model's width, E the number of experts, and k that of a token.
/// This device has h query heads of width d, g key-value heads, f hidden units and v rows of the vocabulary.
struct TensorSizes {
  Index B, S, T, t, D, E, k, h, g, d, f, v;
  Index blocks;
  bool divides_key_heads;

  TensorSizes(const Setting& s, const DecoderModel& m) {
    const TensorHeads heads(m, s.devices);
    B = s.batch, S = as_decoder(*s.workload).length(), T = B * S, D = m.model_dim, d = m.head_dim;
    E = m.experts, k = m.is_mixture() ? m.top_k : 1;
    t = part(T, s.devices, s.device).size();
    h = heads.queries(s.device).size(), g = heads.keys(s.device).size();
    f = part(m.hidden_dim, s.devices, s.device).size();
    v = part(m.vocabulary, s.devices, s.device).size();
    blocks = m.num_blocks;
    divides_key_heads = heads.divides_key_heads();
  }

  /// Elements of what this device owns. The table counts once if it is tied.
  Index parameters(bool is_tied) const {
    const Index attention = 2 * D * h * d + 2 * D * g * d;
    const Index feed_forward = std::max<Index>(E, 1) * 3 * D * f + D * E;
    return blocks * (2 * D + attention + feed_forward) + D + (is_tied ? 1 : 2) * v * D;
  }
  /// Every device has the whole router, and on many devices all weights of keys and values. Where norms are
  /// sequence-parallel, it computes the gradient of what these read for its own rows only, and likewise the
  /// router's gradient.
  Index flops(bool is_sequence) const {
    const Index rows = is_sequence ? t : T;
    const Index keys = divides_key_heads ? linear_flops(T, D, g * d)
                                         : 2 * product_flops(T, D, g * d) + product_flops(rows, D, g * d);
    const Index attention =
        linear_flops(T, D, h * d) + 2 * keys + B * h * attention_flops(S, S, d) + linear_flops(T, h * d, D);
    const Index router = product_flops(T, D, E) + 2 * product_flops(rows, D, E);
    return blocks * (attention + feed_forward_flops(T * k, D, f) + router) + linear_flops(T, D, v);
  }
};

/// `tensor`: what one device sends and computes.
inline Costs tensor_costs(const Setting& s, const Options& o) {
  const DecoderModel& m = as_decoder(*s.workload).model();
  const TensorSizes z(s, m);
  const bool is_sequence = o[sequence_parallel] == "yes";
  auto all_reduce = [&](Index elements) { return ring_all_reduce(elements, s.devices, s.device); };
  Costs costs;
  costs.parameter_bytes = z.parameters(m.is_tied) * bytes_per_element;
  costs.flops = z.flops(is_sequence);
  // The loss: the largest logits, the sums and the logits of the labels.
  Traffic& reduced = costs[Collective::all_reduce] = 3 * all_reduce(z.T);
  // The gradients of all keys and values, where these are not divided.
  if (!z.divides_key_heads) reduced += 2 * z.blocks * all_reduce(z.T * z.g * z.d);
  // Sums that become the residual stream or its gradient: two in each part of a block, and at both ends.
  const Index sums = 2 + 4 * z.blocks;
  const Index gates = m.is_mixture() ? z.blocks : 0;  // their gradients
  if (!is_sequence) {
    reduced += sums * all_reduce(z.T * z.D) + gates * all_reduce(z.T * z.k);
    return costs;
  }
  // These are scattered. All rows are gathered before each part and before the head. In the backward pass
  // they are gathered again (but a mixture keeps what its experts read), and so is the gradient at the end of
  // each part and at the embedding.
  const std::vector<Index> rows = slices(z.T, z.D, s.devices);
  const Index gathers = 3 + (m.is_mixture() ? 5 : 6) * z.blocks;
  costs[Collective::reduce_scatter] = sums * ring_reduce_scatter(rows, s.device) +
                                      gates * ring_reduce_scatter(slices(z.T, z.k, s.devices), s.device);
  costs[Collective::all_gather] = gathers * ring_all_gather(rows, s.device);
  // The gradients of norms and routers are sums over all rows.
  reduced += (1 + 2 * z.blocks) * all_reduce(z.D) + z.blocks * all_reduce(z.D * z.E);
  return costs;
}

}  // namespace shard::decoders
