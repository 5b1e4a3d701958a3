#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/communicator/wrapped_communicator.hpp"
#include "engine/layouts/mesh_shape.hpp"

namespace shard {

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

 protected:
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> part) override { return part; }

 private:
  MeshShape shape_;
  std::map<std::string, Index> pieces_;                          // by axis
  std::map<std::string, std::unique_ptr<Communicator>> groups_;  // by the names of their axes: "data,expert"
};

}  // namespace shard
