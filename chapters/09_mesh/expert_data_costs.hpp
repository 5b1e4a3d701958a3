#pragma once

#include "05_expert/costs.hpp"
#include "costs.hpp"

namespace shard::meshes {

/// `expert-data`: what one device sends, computes and holds. Along the axis expert it does what chapter 05
/// does, with the choices of the tokens there. Counts and the router's gradient go over all devices, and the
/// gradients of a device's experts over the axis data.
inline Costs expert_data_costs(const MixtureSetting& s, const MeshShape& mesh) {
  const Along data(mesh, "data", s.device), experts(mesh, "expert", s.device);
  MixtureSetting along_expert = s;
  along_expert.devices = experts.devices;
  along_expert.device = experts.place;
  along_expert.routed = s.routed.of_devices(data.place * experts.devices, experts.devices);
  expert::ExpertSizes z(along_expert);
  z.of_tokens = s.devices;
  z.place = data.place * experts.devices + experts.place;
  z.b = part(s.batch, z.of_tokens, z.place).size();
  Index reduced = 0;  // my experts for which any device has a token
  for (Index of_all_copies : expert::expert_rows(s, z.mine)) {
    z.copies.push_back(of_all_copies > 0 ? data.devices : 1);
    reduced += of_all_copies > 0 ? 1 : 0;
  }
  Costs costs = expert::expert_parallel_costs(along_expert, z);
  costs.sent_along["expert"] = costs[Collective::all_to_all];
  costs.sent_along["data,expert"] = costs[Collective::all_gather] + costs[Collective::all_reduce];
  for (Index l = 0; l < s.model.num_layers; ++l)
    costs.send_along("data", Collective::all_reduce,
                     reduced * ring_all_reduce(s.model.weights(l), data.devices, data.place));
  return costs;
}

}  // namespace shard::meshes
