#pragma once

/// The trace of a device on five axes. (Part of five_costs.cpp.)

#include <numeric>

#include "engine/mesh_shape.hpp"
#include "engine/proof/trace.hpp"

namespace shard::meshes {

/// A group along some axes of a mesh, in numbers.
struct GroupAlong {
  std::string axes;
  int devices = 1, place = 0;

  GroupAlong(const MeshShape& mesh, const std::vector<std::string>& names, int device) {
    for (const std::string& name : names) {
      axes += (axes.empty() ? "" : ",") + name;
      devices *= mesh.size(name);
      place = place * mesh.size(name) + mesh.place(name, device);
    }
  }
};

/// A trace whose own collectives run along tensor. Others say along which axes they run.
class FiveTrace : public Trace {
 public:
  FiveTrace(const Setting& s, const GroupAlong& tensor) : Trace(along(s, tensor)) {}

  void all_reduce_along(const GroupAlong& group, Index elements) {
    others_.send_along(group.axes, Collective::all_reduce,
                       ring_all_reduce(elements, group.devices, group.place));
    pass(ring_buffer(elements, group.devices));
  }
  /// What arrives takes the place of what leaves.
  void all_to_all_along(const GroupAlong& group, const std::vector<Index>& to,
                        const std::vector<Index>& from) {
    if (group.devices == 1) return;
    others_.send_along(group.axes, Collective::all_to_all, pairwise_all_to_all(to, group.place));
    hold(std::accumulate(from.begin(), from.end(), Index{0}));
    release(std::accumulate(to.begin(), to.end(), Index{0}));
  }
  void send_along(const GroupAlong& group, Index elements) {
    if (elements > 0) others_.send_along(group.axes, Collective::send, {1, elements * bytes_per_element});
  }
  Costs costs(Index parameters) const {
    Costs all = Trace::costs(parameters);
    all.sent_along["tensor"] = all.total();
    for (std::size_t c = 0; c < all.sent.size(); ++c) all.sent[c] += others_.sent[c];
    for (const auto& [axes, traffic] : others_.sent_along) all.sent_along[axes] += traffic;
    return all;
  }

 private:
  static Setting along(Setting s, const GroupAlong& tensor) {
    s.devices = tensor.devices, s.device = tensor.place;
    return s;
  }
  Costs others_;
};

}  // namespace shard::meshes
