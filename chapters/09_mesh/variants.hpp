#pragma once

/// What this chapter's variants share, and those that are registered with chapter.cpp's and compiled apart from them.

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "axes.hpp"
#include "engine/layouts/mesh.hpp"
#include "engine/program/registry.hpp"

namespace shard::meshes {

using EnginePointer = std::unique_ptr<ShardedEngine>;
using Make = std::function<EnginePointer(Communicator&, const MeshShape&, const Workload&, const Options&)>;
using Require = std::function<void(const MeshShape&, const Workload&, const Options&)>;

/// Makes an engine that takes nothing but the mesh.
template <class Engine>
EnginePointer made(Communicator& group, const MeshShape& shape, const Workload&, const Options&) {
  return std::make_unique<Engine>(group, shape);
}
inline void take_all(const MeshShape&, const Workload&, const Options&) {}

/// The option --mesh of variants with the same axes, and what follows from it.
class Axes {
 public:
  explicit Axes(std::vector<std::string> names) : names_(std::move(names)), option_(mesh_option(names_)) {}

  /// The mesh that the options ask for. \throws Error usage
  MeshShape shape(int devices, const Options& o) const { return mesh_shape(o[option_], names_, devices); }
  /// A variant on such meshes.
  Variant variant(const std::string& name, const std::string& summary, const Make& make,
                  const Require& require = take_all) const {
    Variant v{.name = name, .summary = summary};
    v.make = [*this, make](Communicator& group, const Workload& w, const Options& o) {
      return make(group, shape(group.num_devices(), o), w, o);
    };
    v.options = {option_};
    v.mesh = [*this](int devices, const Options& o) { return shape(devices, o); };
    for (const char* copies : {data::name, replica::name})
      if (std::ranges::find(names_, copies) != names_.end()) v.repeats_along = copies;
    v.require = [*this, require](int devices, const Workload& w, const Options& o) {
      require(shape(devices, o), w, o);
    };
    return v;
  }

 private:
  std::vector<std::string> names_;
  Option<std::string> option_;
};

/// What a variant must equal: the same network on one device.
template <class Engine>
Variant single(const std::string& name, const std::string& summary, const WorkloadKind& workload,
               const std::function<std::unique_ptr<Engine>(Communicator&, const Workload&)>& make) {
  return {.name = name,
          .summary = summary,
          .make = [make](Communicator& group, const Workload& w, const Options&) { return make(group, w); },
          .workload = &workload,
          .is_reference = true};
}

/// Decoders on meshes.
std::vector<Variant> decoder_variants();

}  // namespace shard::meshes
