#include <fmt/format.h>

#include "05_expert/single_mixture.hpp"
#include "blocks.hpp"
#include "cannon.hpp"
#include "data_pipeline_tensor.hpp"
#include "data_tensor.hpp"
#include "engine/workloads/decoder/options.hpp"
#include "engine/workloads/mixture/mixture.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "expert_data.hpp"
#include "fsdp_tensor.hpp"
#include "gather_both.hpp"
#include "hsdp.hpp"
#include "summa.hpp"
#include "variants.hpp"

namespace shard::meshes {

namespace {

/// ## Layers on two axes
void take_blocks_of_layers(const MeshShape&, const Workload& network, const Options&) {
  require_blocks(network);
}
std::vector<Variant> variants_of_two_axes() {
  const Axes data_tensor(DataTensorAxes::names()), replica_shard(HsdpAxes::names());
  return {data_tensor.variant("data-tensor", "the batch over data, each matrix over tensor", made<DataTensor>,
                              take_blocks_of_layers),
          data_tensor.variant("fsdp-tensor", "each matrix over both, gathered over data", made<FsdpTensor>,
                              take_blocks_of_layers),
          replica_shard.variant("hsdp", "parameters over shard, copies over replica, rows over both",
                                made<Hsdp>)};
}

/// ## Layers in a pipeline
const Option<Index> micro_batches =
    micro_batches_option("Pieces of each device's rows that follow one another");
const Option<std::string> schedule = [] {
  Option<std::string> name("--schedule", "1f1b", "1f1b, interleaved or gpipe: see chapter 04");
  name.type = "NAME";
  return name;
}();
const Option<Index> virtual_stages{"--virtual-stages", 2,
                                   "Stages at each place of the axis pipeline, if interleaved"};

/// \throws Error usage for a schedule that there is not
StagePlan plan(const Options& o) {
  const std::string name = o[schedule];
  if (name == "1f1b") return {one_forward_one_backward, o[micro_batches], 1};
  if (name == "gpipe") return {gpipe, o[micro_batches], 1};
  if (name != "interleaved")
    throw Error(Code::usage, "--schedule: expected 1f1b, interleaved or gpipe, given {}", name);
  const int each = static_cast<int>(o[virtual_stages]);
  return {[each](int places, Index m) { return interleaved(places, each, m); }, o[micro_batches], each};
}

void require_stages(const MeshShape& mesh, const Workload& network, const Options& o) {
  require_blocks(network);
  const Index stages = Index{mesh.size(pipeline::name)} * plan(o).virtual_stages;
  if (network.num_layers() / 2 < stages)
    throw Error(Code::usage,
                "pipeline: expected at least as many blocks of two layers as stages, {}, given {}", stages,
                network.num_layers() / 2);
}

Variant data_pipeline_tensor() {
  Variant v = Axes(PipelineAxes::names())
                  .variant(
                      "data-pipeline-tensor",
                      "the batch over data, blocks of layers over pipeline, each matrix over tensor",
                      [](Communicator& group, const MeshShape& shape, const Workload&, const Options& o) {
                        return std::make_unique<DataPipelineTensor>(group, shape, plan(o));
                      },
                      require_stages);
  v.options.insert(v.options.end(), {schedule, micro_batches, virtual_stages});
  v.is_deeper = true;
  return v;
}

/// ## Mixtures: with one expert a token, or with several
std::vector<Variant> variants_of_mixtures() {
  auto on_mesh = [](const std::string& name, const std::string& summary, Index top_k) {
    Variant v =
        Axes({"data", "expert"})
            .variant(name, summary,
                     [](Communicator& group, const MeshShape& shape, const Workload& w, const Options&) {
                       return std::make_unique<ExpertData>(group, shape, as_mixture(w).rule());
                     });
    v.workload = &mixture(top_k);
    return v;
  };
  auto on_one = [](const std::string& of, Index top_k) {
    return single<SingleMixture>(of + "-single", "the mixture that " + of + " must equal, on one device",
                                 mixture(top_k), [](Communicator& group, const Workload& w) {
                                   return std::make_unique<SingleMixture>(group, as_mixture(w).rule());
                                 });
  };
  return {on_mesh("expert-data", "experts over expert, copies over data, tokens over both", 2),
          on_mesh("switch-data", "the same with one expert a token", 1), on_one("expert-data", 2),
          on_one("switch-data", 1)};
}

/// ## Matrices in blocks
void require_square(const MeshShape& mesh, const Workload&, const Options&) {
  if (mesh.size("rows") != mesh.size("columns"))
    throw Error(Code::usage,
                fmt::format("mesh: cannon: expected as many devices along rows as along columns, given {}",
                            mesh.describe()));
}
std::vector<Variant> variants_of_blocks() {
  const Axes axes(BlockAxes::names());
  return {axes.variant("summa", "each matrix in blocks: panels go along rows and columns of devices",
                       made<Blocks<Summa>>),
          axes.variant("cannon", "each matrix in blocks, which go around on a square mesh",
                       made<Blocks<Cannon>>, require_square),
          axes.variant("gather-both", "each matrix in blocks: a product gathers rows and columns first",
                       made<Blocks<GatherBoth>>)};
}

std::vector<Variant> all_of(const std::vector<std::vector<Variant>>& groups) {
  std::vector<Variant> all;
  for (const std::vector<Variant>& group : groups) all.insert(all.end(), group.begin(), group.end());
  return all;
}

}  // namespace

const RegisteredChapter chapter({
    .workload = &mlp(),
    .variants = all_of({variants_of_two_axes(),
                        {data_pipeline_tensor()},
                        variants_of_mixtures(),
                        variants_of_blocks(),
                        decoder_variants()}),
    .strategies = {{"dp-tp", "data-tensor"},
                   {"2d", "data-tensor"},
                   {"fsdp-tp", "fsdp-tensor"},
                   {"hybrid-shard", "hsdp"},
                   {"3d", "data-pipeline-tensor"},
                   {"dp-pp-tp", "data-pipeline-tensor"},
                   {"ep-dp", "expert-data"},
                   {"4d", "five"},
                   {"5d", "five"}},
});

}  // namespace shard::meshes
