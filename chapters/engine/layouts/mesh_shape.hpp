#pragma once

/// The axes of a mesh as numbers: their names and sizes, and where each device lies. (mesh.hpp has the groups of
/// devices.)

#include <string>
#include <vector>

#include "engine/basics/options.hpp"

namespace shard {

/// An axis of a mesh, and the number of devices along it.
struct MeshAxis {
  std::string name;
  int size = 1;

  bool operator==(const MeshAxis&) const = default;
};

/// Named axes. Devices 0, 1, ... fill them in order, and the last axis varies fastest: with data=2, tensor=3,
/// devices 0, 1 and 2 have the place 0 on the axis data, and the places 0, 1 and 2 on the axis tensor.
class MeshShape {
 public:
  /// \throws Error usage for an axis that is named twice or has a size below 1
  explicit MeshShape(std::vector<MeshAxis> axes);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  /// The product of all sizes.
  int num_devices() const;
  /// The number of devices along an axis. \throws Error usage when no axis has this name
  int size(const std::string& axis) const { return axes_[index(axis)].size; }
  /// The place of a device on an axis, counted from 0.
  int place(const std::string& axis, int device) const;
  /// "data=2,tensor=3".
  std::string describe() const;

 private:
  std::size_t index(const std::string& axis) const;

  std::vector<MeshAxis> axes_;
};

/// The option --mesh of a variant with these axes. By default it names all of them, in this order.
Option<std::string> mesh_option(const std::vector<std::string>& axes);

/// The mesh that a text describes on this number of devices: "data=2,tensor=3", or "data,tensor" without some
/// sizes. Missing sizes are as even as possible, larger ones first. An axis that the text does not name has
/// size 1. \throws Error usage for an axis that is none of `known`, or sizes that do not fit
MeshShape mesh_shape(const std::string& text, const std::vector<std::string>& known, int devices);

/// The texts for --mesh with all sizes that fit, the axes in this order: "data=1,tensor=4",
/// "data=2,tensor=2", ...
std::vector<std::string> mesh_texts(const std::vector<std::string>& axes, int devices);

}  // namespace shard
