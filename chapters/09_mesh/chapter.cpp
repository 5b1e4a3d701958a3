#include <fmt/format.h>

#include "05_expert/single_mixture.hpp"
#include "08_decoder/single.hpp"
#include "blocks.hpp"
#include "cannon.hpp"
#include "data_pipeline_tensor.hpp"
#include "data_tensor.hpp"
#include "decoder_data_tensor.hpp"
#include "engine/layouts/mesh.hpp"
#include "engine/program/registry.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "engine/workloads/decoder/options.hpp"
#include "engine/workloads/mixture/mixture.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "expert_data.hpp"
#include "five.hpp"
#include "fsdp_tensor.hpp"
#include "gather_both.hpp"
#include "hsdp.hpp"
#include "summa.hpp"

namespace shard::meshes {

namespace {

using EnginePointer = std::unique_ptr<ShardedEngine>;
using Make = std::function<EnginePointer(Communicator&, const MeshShape&, const Workload&, const Options&)>;
using Require = std::function<void(const MeshShape&, const Workload&, const Options&)>;

/// Makes an engine that takes nothing but the mesh.
template <class Engine>
EnginePointer made(Communicator& group, const MeshShape& shape, const Workload&, const Options&) {
  return std::make_unique<Engine>(group, shape);
}
void take_all(const MeshShape&, const Workload&, const Options&) {}
void take_blocks_of_layers(const MeshShape&, const Workload& network, const Options&) {
  require_blocks(network);
}

/// The option --mesh of variants with the same axes, and what follows from it.
class Axes {
 public:
  explicit Axes(std::vector<std::string> names) : names_(std::move(names)), option_(mesh_option(names_)) {}

  /// The mesh that the options ask for. \throws Error usage
  MeshShape shape(int devices, const Options& o) const { return mesh_shape(o[option_], names_, devices); }
  /// Every factorisation of the number of devices with the axes in this order, and with these other options.
  std::vector<Options> every(int devices, const std::vector<std::string>& order,
                             const Options& o = {}) const {
    std::vector<Options> all;
    for (const std::string& text : mesh_texts(order, devices)) all.push_back(Options(o).with(option_, text));
    return all;
  }
  std::vector<Options> every(int devices) const { return every(devices, names_); }
  /// A variant. It is tested on every factorisation, and once with the axes in reverse order.
  Variant variant(const std::string& name, const std::string& summary, const Make& make,
                  const Require& require = take_all) const {
    Variant v{.name = name, .summary = summary};
    v.make = [*this, make](Communicator& group, const Workload& w, const Options& o) {
      return make(group, shape(group.num_devices(), o), w, o);
    };
    v.options = {option_};
    v.tested_on = [*this](int devices) {
      std::vector<Options> all = every(devices);
      std::string reversed;
      for (const std::string& axis : names_) reversed = axis + (reversed.empty() ? "" : ",") + reversed;
      if (devices > 1) all.push_back(Options().with(option_, reversed));
      return all;
    };
    v.require = [*this, require](int devices, const Workload& w, const Options& o) {
      require(shape(devices, o), w, o);
    };
    return v;
  }

 private:
  std::vector<std::string> names_;
  Option<std::string> option_;
};

/// What a variant must equal: the same network on one device.
template <class Engine>
Variant single(const std::string& name, const std::string& summary, const WorkloadKind& workload,
               const std::function<std::unique_ptr<Engine>(Communicator&, const Workload&)>& make) {
  return {.name = name,
          .summary = summary,
          .make = [make](Communicator& group, const Workload& w, const Options&) { return make(group, w); },
          .workload = &workload,
          .is_reference = true};
}
std::unique_ptr<decoders::SingleDecoder> single_decoder(Communicator& group, const Workload& w) {
  return std::make_unique<decoders::SingleDecoder>(group, as_decoder(w).model());
}

/// ## Layers on two axes
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

/// Tested on every factorisation, with axes in three orders, each with another schedule.
Variant data_pipeline_tensor() {
  const Axes axes(PipelineAxes::names());
  Variant v = axes.variant(
      "data-pipeline-tensor", "the batch over data, blocks of layers over pipeline, each matrix over tensor",
      [](Communicator& group, const MeshShape& shape, const Workload&, const Options& o) {
        return std::make_unique<DataPipelineTensor>(group, shape, plan(o));
      },
      require_stages);
  v.options.insert(v.options.end(), {schedule, micro_batches, virtual_stages});
  v.tested_on = [axes](int devices) {
    std::vector<Options> all;
    auto add = [&](const std::vector<std::string>& order, const std::string& name, Index m) {
      for (Options& o : axes.every(devices, order, Options().with(schedule, name).with(micro_batches, m)))
        all.push_back(std::move(o));
    };
    add({"tensor", "data", "pipeline"}, "gpipe", 2);
    add({"pipeline", "tensor", "data"}, "interleaved", 3);
    add({"data", "pipeline", "tensor"}, "1f1b", 3);
    all.push_back(Options());
    return all;
  };
  v.benchmarked_with = Options().with(micro_batches, 1);
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
  Variant on_squares = axes.variant("cannon", "each matrix in blocks, which go around on a square mesh",
                                    made<Blocks<Cannon>>, require_square);
  on_squares.tested_on = [axes, every = on_squares.tested_on](int devices) {
    std::vector<Options> squares;
    for (const Options& o : every(devices))
      if (const MeshShape on = axes.shape(devices, o); on.size("rows") == on.size("columns"))
        squares.push_back(o);
    return squares;
  };
  return {axes.variant("summa", "each matrix in blocks: panels go along rows and columns of devices",
                       made<Blocks<Summa>>),
          on_squares,
          axes.variant("gather-both", "each matrix in blocks: a product gathers rows and columns first",
                       made<Blocks<GatherBoth>>)};
}

/// ## Decoders
/// The form of an engine that divides key-value heads, if every device along tensor can have one.
template <template <class> class Engine, class... More>
EnginePointer by_heads(Communicator& group, const MeshShape& shape, const DecoderModel& m, More... more) {
  if (decoders::TensorHeads(m, shape.size(tensor::name)).divides_key_heads())
    return std::make_unique<Engine<W<1>>>(group, shape, m, more...);
  return std::make_unique<Engine<R>>(group, shape, m, more...);
}
template <template <class> class Engine>
Variant decoder_on_mesh(const std::string& name, const std::string& summary) {
  Variant v =
      Axes(DataTensorAxes::names())
          .variant(name, summary,
                   [](Communicator& group, const MeshShape& shape, const Workload& w, const Options&) {
                     return by_heads<Engine>(group, shape, as_decoder(w).model());
                   });
  v.workload = &decoder();
  return v;
}

const Option<Index> pieces_of_sequences =
    micro_batches_option("Pieces of each device's sequences that follow one another");
const Option<std::string> balance = option_of("--balance", "contiguous", "zigzag",
                                              "Positions of a device along context: contiguous, or zigzag");

/// The engine of five axes, of which a variant has these; the others have one device.
EnginePointer make_five(Communicator& group, const MeshShape& shape, const Workload& w, const Options& o) {
  std::vector<MeshAxis> axes = shape.axes();
  for (const std::string& name : FiveAxes::names())
    if (std::ranges::find(axes, name, &MeshAxis::name) == axes.end()) axes.push_back({name, 1});
  const bool is_zigzag = o[balance] == "zigzag";
  return by_heads<Five>(group, MeshShape(axes), as_decoder(w).model(),
                        is_zigzag ? decoders::SequenceCut::zigzag : decoders::SequenceCut::contiguous,
                        o[pieces_of_sequences]);
}
void require_stages_of_blocks(const MeshShape& mesh, const Workload& w, const Options&) {
  const auto axis = std::ranges::find(mesh.axes(), std::string(pipeline::name), &MeshAxis::name);
  if (axis != mesh.axes().end() && as_decoder(w).model().num_blocks < axis->size)
    throw Error(Code::usage, "pipeline: expected at least as many blocks as stages, {}, given {}", axis->size,
                as_decoder(w).model().num_blocks);
}
/// Tested on every factorisation once, with pieces of different sizes, and both cuts of sequences. With
/// contiguous ones, keys also go to devices that do not see them, where no fault is noticed: faults are
/// planted on few devices.
Variant decoder_over(const std::string& name, const std::string& summary,
                     const std::vector<std::string>& names, bool is_mixture) {
  const Axes axes(names);
  const bool has_context = std::ranges::find(names, context::name) != names.end();
  Variant v = axes.variant(name, summary, make_five, require_stages_of_blocks);
  v.options.push_back(pieces_of_sequences);
  if (has_context) v.options.push_back(balance);
  v.tested_on = [axes, has_context](int devices) {
    std::vector<Options> all = axes.every(devices);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = all[i].with(pieces_of_sequences, static_cast<Index>(i) % 3 + 1);
      if (has_context && (i % 2 == 1 || devices < 4)) all[i] = all[i].with(balance, "zigzag");
    }
    return all;
  };
  v.workload = &decoder(is_mixture ? usual_experts : 0);
  return v;
}
std::vector<Variant> variants_of_decoders() {
  return {
      decoder_on_mesh<DecoderDataTensor>(
          "decoder-data-tensor", "a decoder: sequences over data, heads and hidden units over tensor"),
      decoder_on_mesh<DecoderFsdpTensor>("decoder-fsdp-tensor",
                                         "the same, with parameters over both, a block gathered at a time"),
      single<decoders::SingleDecoder>("decoder-single", "the decoder that these must equal, on one device",
                                      decoder(), single_decoder),
      decoder_over("five", "a mixture decoder: data, pipeline, context, expert and tensor at once",
                   FiveAxes::names(), true),
      decoder_over("decoder-data-pipeline-tensor", "a decoder: the same without context and expert",
                   {data::name, pipeline::name, tensor::name}, false),
      decoder_over("decoder-expert-data", "a mixture decoder: experts over expert, copies over data",
                   {data::name, experts::name}, true),
      single<decoders::SingleDecoder>("five-single",
                                      "the mixture decoder that these must equal, on one device",
                                      decoder(usual_experts), single_decoder)};
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
                        variants_of_decoders()}),
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
