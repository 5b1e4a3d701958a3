#include <fmt/format.h>

#include "data_pipeline_tensor.hpp"
#include "engine/schedules/schedules.hpp"
#include "engine/workloads/mlp.hpp"
#include "mesh_option.hpp"
#include "variants.hpp"

namespace shard::meshes {

namespace {

constexpr Index most_micro_batches = 4096;  // a schedule is a list of all of them

struct PipelineOptions {
  MeshOption mesh{PipelineAxes::names()};
  Option<std::string> schedule{"--schedule", "1f1b", "1f1b, interleaved or gpipe: see chapter 04"};
  Option<Index> micro_batches{"--micro-batches", 4, "Pieces of each device's rows that follow one another"};
  Option<Index> virtual_stages{"--virtual-stages", 2,
                               "Stages at each place of the axis pipeline, if interleaved"};

  PipelineOptions() { schedule.type = "NAME"; }
};

/// Made when they are first needed, since the chapter is registered before main.
const PipelineOptions& options() {
  static const PipelineOptions all;
  return all;
}

MeshShape shape(int devices, const Options& o) {
  return options().mesh.shape(devices, o);
}

/// \throws Error usage for a schedule or sizes that there are not
StagePlan plan(const Options& o) {
  if (o[options().micro_batches] > most_micro_batches)
    throw Error(Code::usage, fmt::format("--micro-batches: expected at most {}, given {}", most_micro_batches,
                                         o[options().micro_batches]));
  if (o[options().schedule] == "1f1b") return {one_forward_one_backward, o[options().micro_batches], 1};
  if (o[options().schedule] == "gpipe") return {gpipe, o[options().micro_batches], 1};
  if (o[options().schedule] != "interleaved")
    throw Error(Code::usage, fmt::format("--schedule: expected 1f1b, interleaved or gpipe, given {}",
                                         o[options().schedule]));
  const int each = static_cast<int>(o[options().virtual_stages]);
  return {[each](int places, Index m) { return interleaved(places, each, m); }, o[options().micro_batches],
          each};
}

void require_stages(int devices, const Workload& network, const Options& o) {
  require_blocks(network);
  const Index stages = Index{shape(devices, o).size(pipeline::name)} * plan(o).virtual_stages;
  if (network.num_layers() / 2 < stages)
    throw Error(Code::usage, fmt::format("pipeline: expected at least as many blocks of two layers as "
                                         "stages, {}, given {}",
                                         stages, network.num_layers() / 2));
}

/// Every factorisation of the number of devices, with axes in three orders, each with another schedule.
std::vector<Options> every_mesh(int devices) {
  auto with = [](const std::string& name, Index m) {
    return Options().with(options().schedule, name).with(options().micro_batches, m);
  };
  std::vector<Options> all;
  auto add = [&](const std::vector<std::string>& order, const Options& o) {
    for (Options& mesh : options().mesh.every(devices, order, o)) all.push_back(std::move(mesh));
  };
  add({"tensor", "data", "pipeline"}, with("gpipe", 2));
  add({"pipeline", "tensor", "data"}, with("interleaved", 3));
  add({"data", "pipeline", "tensor"}, with("1f1b", 3));
  all.push_back(Options());
  return all;
}

}  // namespace

std::vector<Variant> variants_with_stages() {
  Variant v = options().mesh.without_engine(
      "data-pipeline-tensor", "the batch over data, blocks of layers over pipeline, each matrix over tensor");
  v.make = [](Communicator& group, const Workload&, const Options& o) {
    return std::make_unique<DataPipelineTensor>(group, shape(group.num_devices(), o), plan(o));
  };
  v.options = {options().mesh.option(), options().schedule, options().micro_batches,
               options().virtual_stages};
  v.tested_on = every_mesh;
  v.benchmarked_with = Options().with(options().micro_batches, 1);
  v.require = require_stages;
  v.is_deeper = true;
  return {v};
}

}  // namespace shard::meshes
