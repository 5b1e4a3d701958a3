#pragma once

#include "flops.hpp"

namespace shard::decoders {

/// `fsdp`: each parameter is gathered for the forward pass, and for the backward pass once more. The last norm
/// and the head stay from the one to the other, and the backward pass does not need the embedding; a table
/// that is both is gathered for each. Each gradient is reduced once.
inline Costs fsdp_costs(const Setting& setting, const Options&) {
  const DecoderSetting s(setting);
  const DecoderModel& m = s.model;
  Costs costs;
  for (const Parameter& p : m.parameters()) {
    const bool is_once = p.name == embedding_name() || p.name == final_norm_name() || p.name == head_name();
    const Index gathers = is_once && !(m.is_tied && p.name == embedding_name()) ? 1 : 2;
    const std::vector<Index> rows = slices(p.shape[0], num_elements(p.shape) / p.shape[0], s.devices);
    costs[Collective::all_gather] += gathers * ring_all_gather(rows, s.device);
    costs[Collective::reduce_scatter] += ring_reduce_scatter(rows, s.device);
    costs.parameter_bytes += rows[static_cast<std::size_t>(s.device)] * bytes_per_element;
  }
  const Index mine = part(s.batch, s.devices, s.device).size();
  costs.flops = m.num_blocks * block_flops(m, mine, s.length) + head_flops(m, mine * s.length);
  return costs;
}

}  // namespace shard::decoders
