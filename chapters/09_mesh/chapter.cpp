#include "05_expert/single_mixture.hpp"
#include "costs.hpp"
#include "data_tensor.hpp"
#include "engine/program/registry.hpp"
#include "expert_data.hpp"
#include "expert_data_costs.hpp"
#include "fsdp_tensor.hpp"
#include "hsdp.hpp"

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
const MeshOption expert_data{{"data", "expert"}};

/// A mixture on a mesh, with one expert a token, or with several.
Variant mixture_on_mesh(const std::string& name, const std::string& summary, Index top_k) {
  return {.name = name,
          .summary = summary,
          .make =
              [](Communicator& group, const Workload& w, const Options& o) {
                return std::make_unique<ExpertData>(group, expert_data.shape(group.num_devices(), o),
                                                    as_mixture(w).rule());
              },
          .costs = [](const Setting& s,
                      const Options& o) { return expert_data_costs(s, expert_data.shape(s.devices, o)); },
          .options = {expert_data.option},
          .tested_on = [](int devices) { return expert_data.every(devices); },
          .require = [](int devices, const Workload&, const Options& o) { expert_data.shape(devices, o); },
          .workload = &mixture(top_k),
          .reference = name + "-single"};
}

/// The mixture on one device that it must equal.
Variant single_mixture(const std::string& of, Index top_k) {
  return {.name = of + "-single",
          .summary = "the mixture that " + of + " must equal, on one device",
          .make = [](Communicator& group, const Workload& w,
                     const Options&) { return std::make_unique<SingleMixture>(group, as_mixture(w).rule()); },
          .costs = [](const Setting& s, const Options&) { return single_mixture_costs(s); },
          .workload = &mixture(top_k),
          .reference = of + "-single"};
}

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
            mixture_on_mesh("expert-data", "experts over expert, copies over data, tokens over both", 2),
            mixture_on_mesh("switch-data", "the same with one expert a token", 1),
            single_mixture("expert-data", 2),
            single_mixture("switch-data", 1),
        },
    .strategies = {{"dp-tp", "data-tensor"},
                   {"2d", "data-tensor"},
                   {"fsdp-tp", "fsdp-tensor"},
                   {"hybrid-shard", "hsdp"},
                   {"ep-dp", "expert-data"}},
});

}  // namespace shard::meshes
