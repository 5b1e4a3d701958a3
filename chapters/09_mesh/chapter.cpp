#include "blocks_variants.hpp"
#include "costs.hpp"
#include "data_tensor.hpp"
#include "engine/program/registry.hpp"
#include "fsdp_tensor.hpp"
#include "hsdp.hpp"
#include "pipeline_variant.hpp"

namespace shard::meshes {

namespace {

/// The option --mesh of variants with the same axes, and what follows from it.
struct MeshOption {
  std::vector<std::string> axes;
  Option<std::string> option = mesh_option(axes);

  /// The mesh that the options ask for. \throws Error usage
  MeshShape shape(int devices, const Options& options) const {
    return mesh_shape(options[option], axes, devices);
  }
  /// Every factorisation of the number of devices, with the axes in both orders.
  std::vector<Options> every(int devices) const {
    std::vector<Options> all;
    for (const std::vector<std::string>& order : {{axes[1], axes[0]}, axes})
      for (const std::string& text : mesh_texts(order, devices)) all.push_back(Options().with(option, text));
    return all;
  }
  /// A variant on such a mesh. `Costs(setting, shape)` are its closed forms.
  template <class Engine>
  Variant variant(const std::string& name, const std::string& summary,
                  Costs (*costs)(const MlpSetting&, const MeshShape&), bool has_blocks) const {
    return {
        .name = name,
        .summary = summary,
        .make =
            [*this](Communicator& group, const Workload&, const Options& o) {
              return std::make_unique<Engine>(group, shape(group.num_devices(), o));
            },
        .costs = [*this, costs](const Setting& s, const Options& o) { return costs(s, shape(s.devices, o)); },
        .options = {option},
        .tested_on = [*this](int devices) { return every(devices); },
        .require =
            [*this, has_blocks](int devices, const Workload& network, const Options& o) {
              if (has_blocks) require_blocks(network);
              shape(devices, o);
            }};
  }
};

const MeshOption data_tensor{DataTensorAxes::names()};
const MeshOption replica_shard{HsdpAxes::names()};

}  // namespace

const RegisteredChapter chapter({
    .workload = &mlp(),
    .variants =
        {
            data_tensor.variant<DataTensor>("data-tensor", "the batch over data, each matrix over tensor",
                                            data_tensor_costs, true),
            data_tensor.variant<FsdpTensor>("fsdp-tensor", "each matrix over both, gathered over data",
                                            fsdp_tensor_costs, true),
            replica_shard.variant<Hsdp>("hsdp", "parameters over shard, copies over replica, rows over both",
                                        hsdp_costs, false),
            data_pipeline_tensor_variant(),
        },
    .strategies = {{"dp-tp", "data-tensor"},
                   {"2d", "data-tensor"},
                   {"fsdp-tp", "fsdp-tensor"},
                   {"hybrid-shard", "hsdp"},
                   {"3d", "data-pipeline-tensor"},
                   {"dp-pp-tp", "data-pipeline-tensor"}},
});

}  // namespace shard::meshes
