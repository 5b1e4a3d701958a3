#include "engine/layouts/mesh.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace shard {

Mesh::Mesh(Communicator& group, const MeshShape& shape, SourceLine where)
    : WrappedCommunicator(group), shape_(shape) {
  if (shape_.num_devices() != num_devices())
    throw Error(Code::usage, fmt::format("mesh: expected sizes whose product is the number of devices, {}, "
                                         "given {}",
                                         num_devices(), shape_.describe()));
  for (const MeshAxis& axis : shape_.axes()) axes({axis.name}, where);
}

Communicator& Mesh::axis(const std::string& name) const {
  shape_.size(name);  // throws unless the axis exists
  return *groups_.at(name);
}

Index Mesh::pieces(const std::string& axis) const {
  const auto set = pieces_.find(axis);
  if (set == pieces_.end())
    refuse(Code::argument, "mesh", fmt::format("a number of pieces for the axis {}", axis), "none");
  return set->second;
}

Communicator& Mesh::joined(const std::vector<std::string>& names) const {
  const std::string name = fmt::to_string(fmt::join(names, ","));
  const auto made = groups_.find(name);
  if (made == groups_.end()) refuse(Code::argument, "mesh", "axes that were joined before", name);
  return *made->second;
}

Communicator& Mesh::axes(const std::vector<std::string>& names, SourceLine where) {
  const std::string name = fmt::to_string(fmt::join(names, ","));
  if (auto made = groups_.find(name); made != groups_.end()) return *made->second;
  std::vector<MeshAxis> joined;
  for (const std::string& name : names) joined.push_back({name, size(name)});
  const MeshShape refuses_twice(joined);
  // All members send the text of their mesh. Members with another shape or other axes make this a mismatch.
  const std::string mesh = fmt::format("the mesh {} along {}", shape_.describe(), name);
  exchange(mesh.c_str(), 0, where);
  Index key = 0, color = 0;  // places on the joined axes, and on the others
  for (const MeshAxis& axis : joined) key = key * axis.size + place(axis.name);
  for (const MeshAxis& axis : shape_.axes())
    if (std::ranges::find(joined, axis) == joined.end()) color = color * axis.size + place(axis.name);
  return *(groups_[name] = split(color, key, where));
}

std::map<std::string, Traffic> Mesh::sent_along() const {
  std::map<std::string, Traffic> sent;
  for (const auto& [name, group] : groups_)
    if (group->num_devices() > 1) sent[name] = ledger().traffic_in(group->group_id());
  sent["all"] = ledger().traffic_in(group_id());
  return sent;
}

}  // namespace shard
