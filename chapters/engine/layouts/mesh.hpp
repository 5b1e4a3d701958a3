#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/communicator/wrapped_communicator.hpp"

namespace shard {

struct MeshCut;  // layout_types.hpp
struct Traffic;  // books/ledger.hpp
template <class T>
struct Option;  // basics/options.hpp

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

/// A group whose devices lie on a grid with named axes, and the groups along these axes:
///
///     Mesh mesh(world, {{"data", 2}, {"tensor", 3}});
///     mesh.axis("tensor")              the devices that differ from this one on the axis tensor only
///     mesh.axes({"data", "tensor"})    those that differ on these axes only
///
/// All members make it together, and make the same calls in the same order.
class Mesh : public WrappedCommunicator {
 public:
  /// A collective. The group must outlive the mesh. \throws Error usage unless the product of the sizes is
  /// the number of devices, each axis is named once, and each size is 1 or more; mismatch unless all members
  /// pass the same shape
  Mesh(Communicator& group, const MeshShape& shape, SourceLine where = SourceLine::current());
  Mesh(Communicator& group, std::vector<MeshAxis> axes, SourceLine where = SourceLine::current())
      : Mesh(group, MeshShape(std::move(axes)), where) {}
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  const MeshShape& shape() const { return shape_; }
  /// The number of devices along an axis. \throws Error usage for an axis that the mesh does not have; so do
  /// the functions below
  int size(const std::string& axis) const { return shape_.size(axis); }
  /// This device's place on an axis, counted from 0.
  int place(const std::string& axis) const { return shape_.place(axis, device_id()); }
  /// The number of equal pieces, such as heads or sequences, that the letter W keeps whole over an axis. An
  /// engine sets it before it makes tensors with this letter. \throws Error argument before that
  /// @{
  void keep_whole(const std::string& axis, Index pieces) { pieces_[axis] = pieces; }
  Index pieces(const std::string& axis) const;
  /// @}
  /// The group along an axis, in the order of the places on it.
  Communicator& axis(const std::string& name) const;
  /// The group along several axes, of which the last one given varies fastest. The first call with these axes
  /// is a collective. \throws Error mismatch unless all members pass the same axes
  Communicator& axes(const std::vector<std::string>& names, SourceLine where = SourceLine::current());
  /// The group along axes that `axes` was called with before. \throws Error argument for other axes
  Communicator& joined(const std::vector<std::string>& names) const;
  /// The traffic of each group of axes and of all devices, since the ledger began to measure, by the names of
  /// the axes: "data", "data,expert", "all". An axis with one device has none.
  std::map<std::string, Traffic> sent_along() const;

 private:
  MeshShape shape_;
  std::map<std::string, Index> pieces_;                          // by axis
  std::map<std::string, std::unique_ptr<Communicator>> groups_;  // by the names of their axes: "data,expert"
};

/// The indices of a dimension that this device has after these cuts, the outer ones first. Cuts of other
/// dimensions do not count. \throws Error argument unless a cut's number of pieces divides the extent
Range range_after(const std::vector<MeshCut>& cuts, int dimension, Index extent);
/// The indices of every dimension. \throws Error argument for a cut along a dimension that the shape lacks
Ranges ranges_after(const std::vector<MeshCut>& cuts, const Shape& whole);
/// The shape of this device's part.
Shape shape_after(const std::vector<MeshCut>& cuts, const Shape& whole);

}  // namespace shard
