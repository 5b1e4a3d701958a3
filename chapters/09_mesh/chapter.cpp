#include "blocks_variants.hpp"
#include "costs.hpp"
#include "data_tensor.hpp"
#include "engine/program/registry.hpp"

namespace shard::meshes {

namespace {

const std::vector<std::string> data_and_tensor = DataTensorAxes::names();
const Option<std::string> data_tensor_mesh = mesh_option(data_and_tensor);

/// The mesh that the options ask for. \throws Error usage
MeshShape data_tensor_shape(int devices, const Options& options) {
  return mesh_shape(options[data_tensor_mesh], data_and_tensor, devices);
}

/// Every factorisation of the number of devices, with the axes in both orders.
std::vector<Options> every_mesh(int devices) {
  std::vector<Options> all;
  for (const std::string& text : mesh_texts({"tensor", "data"}, devices))
    all.push_back(Options().with(data_tensor_mesh, text));
  for (const std::string& text : mesh_texts({"data", "tensor"}, devices))
    all.push_back(Options().with(data_tensor_mesh, text));
  all.push_back(Options());
  return all;
}

}  // namespace

const RegisteredChapter chapter({
    .workload = &mlp(),
    .variants =
        {
            {.name = "data-tensor",
             .summary = "the batch over the axis data, each matrix over the axis tensor",
             .make =
                 [](Communicator& group, const Workload&, const Options& o) {
                   return std::make_unique<DataTensor>(group, data_tensor_shape(group.num_devices(), o));
                 },
             .costs = [](const Setting& s,
                         const Options& o) { return data_tensor_costs(s, data_tensor_shape(s.devices, o)); },
             .options = {data_tensor_mesh},
             .tested_on = every_mesh,
             .require =
                 [](int devices, const Workload& network, const Options& o) {
                   require_blocks(network);
                   data_tensor_shape(devices, o);
                 }},
        },
    .strategies = {{"dp-tp", "data-tensor"}, {"2d", "data-tensor"}},
});

}  // namespace shard::meshes
