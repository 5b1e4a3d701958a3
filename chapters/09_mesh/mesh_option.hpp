#pragma once

#include "engine/mesh_shape.hpp"
#include "engine/program/registry.hpp"

namespace shard::meshes {

/// The option --mesh of variants with the same axes, and what follows from it.
class MeshOption {
 public:
  explicit MeshOption(std::vector<std::string> axes) : axes_(std::move(axes)), option_(mesh_option(axes_)) {}

  const Option<std::string>& option() const { return option_; }
  /// The mesh that the options ask for. \throws Error usage
  MeshShape shape(int devices, const Options& options) const {
    return mesh_shape(options[option_], axes_, devices);
  }
  /// Every factorisation of the number of devices with the axes in this order, and with these other options.
  std::vector<Options> every(int devices, const std::vector<std::string>& order,
                             const Options& others = {}) const;

  /// A variant whose engine takes nothing but the mesh. It is tested on every factorisation, and once with
  /// the axes in reverse order.
  template <class Engine>
  Variant variant(const std::string& name, const std::string& summary) const {
    Variant v = without_engine(name, summary);
    v.make = [*this](Communicator& group, const Workload&, const Options& o) {
      return std::make_unique<Engine>(group, shape(group.num_devices(), o));
    };
    return v;
  }
  /// The same before `make` is set.
  Variant without_engine(const std::string& name, const std::string& summary) const;

 private:
  std::vector<std::string> axes_;
  Option<std::string> option_;
};

/// The variant also refuses what this refuses.
Variant that_requires(Variant variant,
                      const std::function<void(int devices, const Workload&, const Options&)>& require);

}  // namespace shard::meshes
