#pragma once

/// What `context` and `ulysses` send and compute in a step.

#include "engine/workloads/decoder.hpp"
#include "sequence_cut.hpp"

namespace shard::decoders {

/// The letters of these forms: t of the T = B S tokens are a device's. The other ones are the model's.
struct SequenceSizes {
  Index D, H, G, d, F, E, V, blocks;
  Index t;  ///< tokens of this device

  SequenceSizes(const DecoderModel& m, const SequenceCut& cut, int device)
      : D(m.model_dim),
        H(m.heads),
        G(m.key_heads),
        d(m.head_dim),
        F(m.hidden_dim),
        E(m.experts),
        V(m.vocabulary),
        blocks(m.num_blocks),
        t(cut.rows(device).size()) {}
};

/// Operations of all products but attention's. A product of the forward pass has two of its size in the
/// backward pass. With experts, k rows of each token go through one of them each.
inline Index tokenwise_flops(const DecoderModel& m, const SequenceSizes& z) {
  const Index heads = 2 * product_flops(z.t, z.D, z.H * z.d) + 2 * product_flops(z.t, z.D, z.G * z.d);
  const Index rows = m.is_mixture() ? z.t * m.top_k : z.t;
  const Index feed_forward = 3 * product_flops(rows, z.D, z.F) + product_flops(z.t, z.D, z.E);
  return 3 * (z.blocks * (heads + feed_forward) + product_flops(z.t, z.D, z.V));
}

/// Operations of attention with so many scores, in all heads and sequences. Forward, q kᵀ and p v. Backward,
/// the scores again, dv = pᵀ do, dp = do vᵀ, dk = dsᵀ q and dq = ds k.
inline Index attention_flops(const SequenceSizes& z, Index scores) {
  return z.blocks * 7 * 2 * scores * z.d;
}

/// What both variants have: all weights, and an all-reduce of each one's gradient.
inline Costs sequence_costs(const DecoderModel& m, const SequenceSizes& z, int devices, int device) {
  Costs costs;
  costs.flops = tokenwise_flops(m, z);
  for (const Parameter& p : m.parameters()) {
    const Index elements = num_elements(p.shape);
    costs.parameter_bytes += elements * bytes_per_element;
    costs[Collective::all_reduce] += ring_all_reduce(elements, devices, device);
  }
  return costs;
}

/// Scores that a device computes in `context` of one head of one sequence: all those of a run of its queries
/// and a run of any device's keys, if one of these queries sees one of these keys.
inline Index ring_scores(const SequenceCut& cut, int device, const std::optional<Index>& window) {
  Index scores = 0;
  for (const Range& q : cut.runs_of(device))
    for (int other = 0; other < cut.devices(); ++other)
      for (const Range& k : cut.runs_of(other)) {
        const Index first_seen = window ? q.begin - *window + 1 : 0;
        if (k.begin < q.end && k.end > first_seen) scores += q.size() * k.size();
      }
  return scores;
}

/// `context`: keys and values of every piece but my right neighbour's, forward and again backward; and the
/// gradients of every piece, the last one to its owner, my right neighbour. A piece is two messages.
inline Costs context_costs(const Setting& s, CutSequences cut_sequences) {
  const Decoder& decoder = as_decoder(*s.workload);
  const DecoderModel& m = decoder.model();
  const SequenceCut cut = cut_sequences(s.batch, decoder.length(), s.devices);
  const SequenceSizes z(m, cut, s.device);
  Costs costs = sequence_costs(m, z, s.devices, s.device);
  costs.flops += attention_flops(z, cut.sequences * z.H * ring_scores(cut, s.device, m.window));
  if (s.devices == 1) return costs;
  const int right = (s.device + 1) % s.devices;
  for (int of = 0; of < s.devices; ++of) {
    const Index elements = cut.rows(of).size() * z.G * z.d;
    if (elements == 0) continue;
    const Index times = of == right ? 1 : 3;
    costs[Collective::send] += z.blocks * 2 * times * Traffic{1, elements * bytes_per_element};
  }
  return costs;
}

/// `ulysses`: forward, q, k and v go from tokens to heads, and o back. Backward, do goes from tokens to
/// heads, and dq, dk and dv back. With fewer key-value heads than devices, k and v are gathered, and their
/// gradients are summed and divided.
inline Costs ulysses_costs(const Setting& s) {
  const Decoder& decoder = as_decoder(*s.workload);
  const DecoderModel& m = decoder.model();
  const SequenceCut cut = SequenceCut::contiguous(s.batch, decoder.length(), s.devices);
  const SequenceSizes z(m, cut, s.device);
  const bool divides_key_heads = z.G >= s.devices;
  const Index units = divides_key_heads ? z.G : z.H, width = z.H / units * z.d;
  auto units_of = [&](int device) { return part(units, s.devices, device).size(); };
  std::vector<Index> to_heads, to_tokens, tokens;  // of one unit of width 1, for each device
  for (int other = 0; other < s.devices; ++other) {
    to_heads.push_back(z.t * units_of(other));
    to_tokens.push_back(cut.rows(other).size() * units_of(s.device));
    tokens.push_back(cut.rows(other).size() * z.G * z.d);
  }
  auto all_to_all = [&](std::vector<Index> parts, Index of_unit) {
    for (Index& elements : parts) elements *= of_unit;
    return pairwise_all_to_all(parts, s.device);
  };
  Costs costs = sequence_costs(m, z, s.devices, s.device);
  const Index heads = units_of(s.device) * (z.H / units);
  costs.flops += attention_flops(z, cut.sequences * heads * cut.length * cut.length);
  costs[Collective::all_to_all] = 2 * z.blocks * (all_to_all(to_heads, width) + all_to_all(to_tokens, width));
  if (divides_key_heads) {
    costs[Collective::all_to_all] += 2 * z.blocks * (all_to_all(to_heads, z.d) + all_to_all(to_tokens, z.d));
  } else {
    costs[Collective::all_gather] = 2 * z.blocks * ring_all_gather(tokens, s.device);
    costs[Collective::reduce_scatter] = 2 * z.blocks * ring_reduce_scatter(tokens, s.device);
  }
  return costs;
}

}  // namespace shard::decoders
