#pragma once

/// The axes that this chapter's engines cut over, and their tensors: one letter for each axis.

#include "engine/engines/mesh_engine.hpp"

namespace shard::meshes {

/// The batch is cut over this axis.
struct data {
  static constexpr const char* name = "data";
};
/// Each weight matrix is cut over this axis.
struct tensor {
  static constexpr const char* name = "tensor";
};
/// Each place on this axis has some of the blocks.
struct pipeline {
  static constexpr const char* name = "pipeline";
};
/// The positions of each sequence are cut over this axis.
struct context {
  static constexpr const char* name = "context";
};
/// Each place on this axis has some of a mixture's experts.
struct experts {
  static constexpr const char* name = "expert";
};

/// In hsdp, these hold copies of the parameters.
struct replica {
  static constexpr const char* name = "replica";
};
/// In hsdp, these divide the parameters.
struct shards {
  static constexpr const char* name = "shard";
};

using namespace letters;  // R, S<0>, S<1>, P
using DataTensorAxes = MeshAxes<data, tensor>;
using HsdpAxes = MeshAxes<replica, shards>;

}  // namespace shard::meshes
