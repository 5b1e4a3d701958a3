#include "data_tensor.hpp"
#include "engine/workloads/mlp.hpp"
#include "fsdp_tensor.hpp"
#include "hsdp.hpp"
#include "mesh_option.hpp"
#include "variants.hpp"

namespace shard::meshes {

std::vector<Variant> variants_of_two_axes() {
  const MeshOption data_tensor(DataTensorAxes::names());
  const MeshOption replica_shard(HsdpAxes::names());
  auto blocks = [](int, const Workload& network, const Options&) { require_blocks(network); };
  return {that_requires(
              data_tensor.variant<DataTensor>("data-tensor", "the batch over data, each matrix over tensor"),
              blocks),
          that_requires(
              data_tensor.variant<FsdpTensor>("fsdp-tensor", "each matrix over both, gathered over data"),
              blocks),
          replica_shard.variant<Hsdp>("hsdp", "parameters over shard, copies over replica, rows over both")};
}

}  // namespace shard::meshes
