#pragma once

#include "engine/workloads/mixture/mixture.hpp"

namespace shard::expert {

/// The costs of a mixture depend on which experts the tokens of the batch chose, which s.routed says. In
/// these forms:
/// - b is the number of a device's tokens, and n the number of their kept choices;
/// - m is the number of kept choices, of all devices' tokens, for this device's experts; m_e those for expert
///   e;
/// - D, D' and F are the widths, W the elements of an expert, and K the activations that are kept.

/// Operations of experts, for the number of rows that each works on: three products of one size for each
/// layer. Layer 0's dL/dx counts only when it is wanted.
inline Index expert_flops(const MixtureSetting& s, const std::vector<Index>& rows) {
  Index flops = 0;
  for (Index m_e : rows)
    for (Index l = 0; l < s.model.num_layers; ++l)
      flops += (l > 0 || s.input_grad ? 3 : 2) * product_flops(m_e, s.model.width(l), s.model.width(l + 1));
  return flops;
}

/// Operations of the router on b tokens: x Wr, xᵀ dlogits, and dlogits Wrᵀ for dL/dx.
inline Index router_flops(const MixtureSetting& s, Index b) {
  return (s.input_grad ? 3 : 2) * product_flops(b, s.model.model_dim, s.model.num_experts);
}

/// The number of kept choices for each expert of a range, of all devices' tokens.
inline std::vector<Index> expert_rows(const MixtureSetting& s, Range experts) {
  std::vector<Index> rows;
  for (Index e = experts.begin; e < experts.end; ++e) rows.push_back(s.routed.kept_for(e));
  return rows;
}

/// Elements that a device holds during the whole step: parameters, x, probabilities and gates.
inline Index always_held(const MixtureSetting& s, Index parameters, Index b) {
  return parameters + b * s.model.model_dim + b * s.model.num_experts + b * s.rule.top_k;
}

/// The experts' forward passes, one after the other, while the device holds `held` other elements. Each
/// layer's input is kept. Returns K.
inline Index experts_forward(Peak& peak, const MixtureSetting& s, Index held,
                             const std::vector<Index>& rows) {
  Index kept = 0;
  for (Index m_e : rows)
    for (Index l = 0; l < s.model.num_layers; ++l) {
      kept += m_e * s.model.width(l);
      peak.at({held, kept, m_e * s.model.width(l + 1)});
    }
  return kept;
}

/// The experts' backward passes, while the device holds `held` other elements. They hold the gradient d of a
/// layer's output, all weights' gradients so far, and then the gradient of the layer's input beside d. Returns
/// the elements of all weights' gradients.
inline Index experts_backward(Peak& peak, const MixtureSetting& s, Index held, Index kept,
                              const std::vector<Index>& rows) {
  const MixtureModel& m = s.model;
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

/// Memory for dL/dlogits, while the device holds `held` other elements. With one expert for each token, it is
/// made of dL/dgates in one matrix; with several experts, the balancing loss needs a second matrix.
inline void router_backward(Peak& peak, const MixtureSetting& s, Index held, Index b) {
  const Index of_logits = b * s.model.num_experts;
  peak.at({held, b * s.rule.top_k, of_logits});
  if (s.rule.top_k > 1) peak.at({held, of_logits, of_logits});
}

/// Sizes of one device's part, for the closed form of `switch` and `top-k`, in the letters above. Tokens
/// and experts are divided over the devices.
struct ExpertSizes {
  Index k, E, D, D_out, b;
  Range mine;                   ///< my experts
  std::vector<Index> rows;      ///< m_e of each
  std::vector<Index> to, from;  ///< (N) n by the device that receives, m by the device that sends
  Index n = 0, m = 0;

  explicit ExpertSizes(const MixtureSetting& s)
      : k(s.rule.top_k),
        E(s.model.num_experts),
        D(s.model.width(0)),
        D_out(s.model.width(s.model.num_layers)),
        b(part(s.batch, s.devices, s.device).size()),
        mine(part(E, s.devices, s.device)),
        rows(expert_rows(s, mine)) {
    for (int d = 0; d < s.devices; ++d) {
      const Range theirs = part(E, s.devices, d);
      to.push_back(0);
      for (Index e = theirs.begin; e < theirs.end; ++e) to.back() += s.routed.kept_from(s.device, e);
      from.push_back(0);
      for (Index e = mine.begin; e < mine.end; ++e) from.back() += s.routed.kept_from(d, e);
      n += to.back();
      m += from.back();
    }
  }

  Index router() const { return D * E; }
  Index parameters(const MixtureModel& model) const { return router() + mine.size() * model.weights(); }
};

/// The most that a device holds, step by step: in an all-to-all, what it sends and what it receives.
inline Peak expert_parallel_peak(const MixtureSetting& s, const ExpertSizes& z) {
  const Index across = s.devices > 1 ? 1 : 0;
  const Index counts = z.k * z.E, dgates = z.b * z.k, dlogits = z.b * z.E;
  const Index x = z.b * z.D, out = z.b * z.D_out;
  const Index y = z.m * z.D_out;        // of my experts
  const Index answers = z.n * z.D_out;  // to my tokens
  const Index held = always_held(s, z.parameters(s.model), z.b);
  Peak peak;
  peak.at({held, counts, across * s.devices * counts});
  peak.at({held, z.n * z.D, across * z.m * z.D});  // tokens to the experts
  const Index kept = experts_forward(peak, s, held + z.m * z.D + y, z.rows);
  peak.at({held, kept, y, across * answers});          // answers back
  peak.at({held, kept, answers, out, out});            // with the output and dL/dout
  peak.at({held, kept, answers, out, dgates});         // with dL/dout and dL/dgates
  peak.at({held, kept, dgates, answers, across * y});  // gradients of answers to the experts
  const Index dtokens = s.input_grad ? z.m * z.D : 0;
  Index dw = experts_backward(peak, s, held + dgates + y + dtokens, kept, z.rows);
  router_backward(peak, s, held + dw + dtokens, z.b);
  dw += z.router();
  peak.at({held, dw, dtokens, dlogits, ring_buffer(z.router(), s.devices)});
  if (!s.input_grad) return peak;
  peak.at({held, dw, dlogits, dtokens, across * z.n * z.D});  // gradients of tokens back
  peak.at({held, dw, dlogits, z.n * z.D, x});                 // dL/dx through the experts
  peak.at({held, dw, dlogits, x, x});                         // and through the router
  return peak;
}

/// `switch` and `top-k`: what one device sends, computes and holds.
inline Costs expert_parallel_costs(const MixtureSetting& s, const ExpertSizes& z) {
  Costs costs;
  costs.parameter_bytes = z.parameters(s.model) * bytes_per_element;
  costs.flops = router_flops(s, z.b) + expert_flops(s, z.rows);
  // Four all-to-alls (three without dL/dx): tokens to the experts, answers back, gradients of answers to the
  // experts, gradients of tokens back. `elements` is the length of a row.
  auto all_to_all = [&](std::vector<Index> rows, Index elements) {
    for (Index& of_device : rows) of_device *= elements;
    return pairwise_all_to_all(rows, s.device);
  };
  costs[Collective::all_to_all] =
      all_to_all(z.to, z.D) + all_to_all(z.from, z.D_out) + all_to_all(z.to, z.D_out);
  if (s.input_grad) costs[Collective::all_to_all] += all_to_all(z.from, z.D);
  // The counts, k E numbers from each device, and the sum of the router's gradients.
  const std::vector<Index> counts(static_cast<std::size_t>(s.devices), z.k * z.E);
  costs[Collective::all_gather] = ring_all_gather(counts, s.device);
  costs[Collective::all_reduce] = ring_all_reduce(z.router(), s.devices, s.device);
  costs.peak_bytes = expert_parallel_peak(s, z).bytes();
  return costs;
}

/// The mixture on one device: b is B, and nothing is sent. The device gathers rows of x and of dL/dout for
/// one expert after the other.
inline Costs single_mixture_costs(const MixtureSetting& s) {
  const MixtureModel& m = s.model;
  const Index k = s.rule.top_k, E = m.num_experts, B = s.batch;
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

}  // namespace shard::expert
