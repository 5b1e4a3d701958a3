#pragma once

#include "experts_route.hpp"
#include "flops.hpp"

namespace shard::decoders {

/// Whether a parameter is one of an expert's, and of which: the number behind "expert_". Else -1.
inline Index expert_of(const std::string& parameter) {
  const std::size_t at = parameter.find("expert_");
  return at == std::string::npos ? -1 : std::stoll(parameter.substr(at + 7));
}

/// `experts`: how much a device sends and computes depends on which experts the tokens chose (s.data).
///
/// - Sends: in each block, four all-to-alls with D elements for each choice: tokens to the experts, answers
///   back, and their gradients in the same two ways; and before these one with the counts, a number for
///   each expert. The gradients of all parameters but the experts' are reduced.
/// - Computes: attention, router and head on its own sequences, and its experts on the tokens that came.
inline Costs experts_costs(const Setting& setting, const Options&) {
  const DecoderSetting s(setting);
  const DecoderModel& m = s.model;
  const auto& chosen = dynamic_cast<const ChosenExperts&>(*s.data).of_device;  // (N, blocks · E)
  const Index sequences = part(s.batch, s.devices, s.device).size(), rows = sequences * s.length;
  const Range mine = part(m.experts, s.devices, s.device);
  Costs costs;
  costs.flops = head_flops(m, rows);
  for (Index b = 0; b < m.num_blocks; ++b) {
    auto count = [&](int device, Index e) {
      return chosen[static_cast<std::size_t>(device)][static_cast<std::size_t>(b * m.experts + e)];
    };
    std::vector<Index> leaving, arriving, counts;  // (E), (N, E/N), (N)
    for (Index e = 0; e < m.experts; ++e) leaving.push_back(count(s.device, e));
    for (int d = 0; d < s.devices; ++d) {
      for (Index e = mine.begin; e < mine.end; ++e) arriving.push_back(count(d, e));
      counts.push_back(part(m.experts, s.devices, d).size());
    }
    Route route = route_of(leaving, arriving, s.devices, s.device);
    costs.flops += attention_flops(m, sequences, s.length) + router_flops(m, rows) +
                   feed_forward_flops(m, route.arriving);
    costs[Collective::all_to_all] += pairwise_all_to_all(counts, s.device);
    for (std::vector<Index>* rows_for : {&route.to, &route.from}) {
      for (Index& of_device : *rows_for) of_device *= m.model_dim;
      costs[Collective::all_to_all] += 2 * pairwise_all_to_all(*rows_for, s.device);
    }
  }
  for (const Parameter& p : m.parameters()) {
    const Index e = expert_of(p.name);
    if (e < 0) costs[Collective::all_reduce] += ring_all_reduce(num_elements(p.shape), s.devices, s.device);
    if (e < 0 || part_with(m.experts, s.devices, e) == s.device)
      costs.parameter_bytes += num_elements(p.shape) * bytes_per_element;
  }
  return costs;
}

}  // namespace shard::decoders
