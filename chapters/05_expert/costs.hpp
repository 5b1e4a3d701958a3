#pragma once

#include "engine/costs.hpp"

namespace shard {

/// Costs of a mixture depend on where the choices of the batch went: on s.routed, beside the setting. Write b
/// for a device's tokens, n for their kept choices, m for the kept choices of any device that its experts
/// work on, m_e for those of expert e; D, D' and F for the widths, W for the elements of an expert, K for
/// activations kept.

/// Operations of experts that work on so many rows each: three products of one size a layer, but dL/dx of
/// layer 0 only when it is asked for.
inline Index expert_flops(const Setting& s, const std::vector<Index>& rows) {
  Index flops = 0;
  for (Index m_e : rows)
    for (Index l = 0; l < s.model.num_layers; ++l)
      flops += (l > 0 || s.input_grad ? 3 : 2) * product_flops(m_e, s.model.width(l), s.model.width(l + 1));
  return flops;
}

/// Operations of the router on b tokens: x Wr, xᵀ dlogits, and dlogits Wrᵀ for dL/dx.
inline Index router_flops(const Setting& s, Index b) {
  return (s.input_grad ? 3 : 2) * product_flops(b, s.model.model_dim, s.model.num_experts);
}

/// Kept choices for each expert of a range, of any device's tokens.
inline std::vector<Index> expert_rows(const Setting& s, Range experts) {
  std::vector<Index> rows;
  for (Index e = experts.begin; e < experts.end; ++e) rows.push_back(s.routed.kept_for(e));
  return rows;
}

/// Elements that every moment of a step has in common: parameters, x, probabilities and gates.
inline Index always_held(const Setting& s, Index parameters, Index b) {
  return parameters + b * s.model.model_dim + b * s.model.num_experts + b * s.routing.top_k;
}

/// The experts' forward passes, one after the other, beside `held` elements. Each layer's input is kept.
/// Returns K.
inline Index experts_forward(Peak& peak, const Setting& s, Index held, const std::vector<Index>& rows) {
  Index kept = 0;
  for (Index m_e : rows)
    for (Index l = 0; l < s.model.num_layers; ++l) {
      kept += m_e * s.model.width(l);
      peak.at({held, kept, m_e * s.model.width(l + 1)});
    }
  return kept;
}

/// Their backward passes, beside `held`: the gradient d of a layer's output, the new gradient of its weights
/// beside the ones before, then dL/d(input) beside d. Returns the elements of all weights' gradients.
inline Index experts_backward(Peak& peak, const Setting& s, Index held, Index kept,
                              const std::vector<Index>& rows) {
  const Model& m = s.model;
  Index dw = 0;
  for (Index m_e : rows) {
    peak.at({held, kept, dw, m_e * m.width(m.num_layers)});
    for (Index l = m.num_layers - 1; l >= 0; --l) {
      dw += m.weights(l);
      peak.at({held, kept, dw, m_e * m.width(l + 1), l > 0 || s.input_grad ? m_e * m.width(l) : 0});
      kept -= m_e * m.width(l);
    }
  }
  return dw;
}

/// dL/dlogits, beside `held`: with one expert a token, from dL/dgates in one matrix; with several, the
/// balance has a matrix of its own.
inline void router_backward(Peak& peak, const Setting& s, Index held, Index b) {
  const Index of_logits = b * s.model.num_experts;
  peak.at({held, b * s.routing.top_k, of_logits});
  if (s.routing.top_k > 1) peak.at({held, of_logits, of_logits});
}

/// `switch` and `top-k`: what one device sends, computes and holds.
inline Costs expert_parallel_costs(const Setting& s) {
  const Model& m = s.model;
  const Index k = s.routing.top_k, E = m.num_experts, N = s.devices;
  const Index D = m.width(0), D_out = m.width(m.num_layers), router = D * E;
  const Index b = part(s.batch, s.devices, s.device).size();
  const Range mine = part(E, s.devices, s.device);
  const std::vector<Index> rows = expert_rows(s, mine);
  Costs costs;
  costs.parameter_bytes = (router + mine.size() * m.weights()) * bytes_per_element;
  costs.flops = router_flops(s, b) + expert_flops(s, rows);

  // Four all-to-alls (three without dL/dx): tokens to the experts, answers back; gradients of answers to the
  // experts, of tokens back. `to` and `from` are the rows on the way there, `elements` what a row is made of.
  std::vector<Index> to(static_cast<std::size_t>(N)), from(to);
  for (int d = 0; d < N; ++d) {
    const Range theirs = part(E, s.devices, d);
    auto at = static_cast<std::size_t>(d);
    for (Index e = theirs.begin; e < theirs.end; ++e) to[at] += s.routed.kept_from(s.device, e);
    for (Index e = mine.begin; e < mine.end; ++e) from[at] += s.routed.kept_from(d, e);
  }
  auto all_to_all = [&](std::vector<Index> parts, Index elements) {
    for (Index& p : parts) p *= elements;
    return pairwise_all_to_all(parts, s.device);
  };
  costs[Collective::all_to_all] = all_to_all(to, D) + all_to_all(from, D_out) + all_to_all(to, D_out);
  if (s.input_grad) costs[Collective::all_to_all] += all_to_all(from, D);
  // The counts, k E numbers from each device, and the sum of the router's gradients.
  costs[Collective::all_gather] = ring_all_gather(std::vector<Index>(to.size(), k * E), s.device);
  costs[Collective::all_reduce] = ring_all_reduce(router, s.devices, s.device);

  Index n = 0, arriving = 0;
  for (Index of_device : to) n += of_device;
  for (Index of_expert : rows) arriving += of_expert;
  const Index across = N > 1 ? 1 : 0;  // on its way, a tensor is there twice: as it leaves and as it arrives
  const Index held = always_held(s, router + mine.size() * m.weights(), b);
  Peak peak;
  peak.at({held, k * E, across * N * k * E});
  peak.at({held, n * D, across * arriving * D});
  const Index kept = experts_forward(peak, s, held + arriving * (D + D_out), rows);
  peak.at({held, kept, arriving * D_out, across * n * D_out});
  peak.at({held, kept, n * D_out, b * D_out, b * D_out});  // the answers, the output, dL/dout
  peak.at({held, kept, n * D_out, b * D_out, b * k});      // the answers, dL/dout, dL/dgates
  peak.at({held, kept, b * k, n * D_out, across * arriving * D_out});
  const Index dtokens = s.input_grad ? arriving * D : 0;
  Index dw = experts_backward(peak, s, held + b * k + arriving * D_out + dtokens, kept, rows);
  router_backward(peak, s, held + dw + dtokens, b);
  dw += router;
  peak.at({held, dw, dtokens, b * E, ring_buffer(router, s.devices)});
  if (s.input_grad) {
    peak.at({held, dw, b * E, dtokens, across * n * D});
    peak.at({held, dw, b * E, n * D, b * D});  // back through the experts
    peak.at({held, dw, b * E, b * D, b * D});  // and through the router
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

/// The mixture on one device: b is B, and nothing travels; rows are gathered from x, and gradients from
/// dL/dout, for one expert after the other.
inline Costs single_mixture_costs(const Setting& s) {
  const Model& m = s.model;
  const Index k = s.routing.top_k, E = m.num_experts, B = s.batch;
  const Index D = m.width(0), D_out = m.width(m.num_layers), P = D * E + E * m.weights();
  const std::vector<Index> rows = expert_rows(s, {0, E});
  Costs costs;
  costs.parameter_bytes = P * bytes_per_element;
  costs.flops = router_flops(s, B) + expert_flops(s, rows);
  Index n = 0;
  for (Index of_expert : rows) n += of_expert;
  const Index held = always_held(s, P, B);
  Peak peak;
  const Index kept = experts_forward(peak, s, held + n * D_out, rows);
  peak.at({held, kept, n * D_out, B * D_out, B * D_out});
  peak.at({held, kept, n * D_out, B * D_out, B * k});
  const Index dtokens = s.input_grad ? n * D : 0;
  Index dw = experts_backward(peak, s, held + B * k + B * D_out + dtokens, kept, rows);
  router_backward(peak, s, held + dw + dtokens, B);
  dw += D * E;
  peak.at({held, dw, dtokens, B * E});
  if (s.input_grad) {
    peak.at({held, dw, B * E, n * D, B * D});
    peak.at({held, dw, B * E, B * D, B * D});
  }
  costs.peak_bytes = peak.bytes();
  return costs;
}

}  // namespace shard
