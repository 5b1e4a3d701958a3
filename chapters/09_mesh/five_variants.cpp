#include <fmt/format.h>

#include "08_decoder/single.hpp"
#include "engine/workloads/decoder.hpp"
#include "five.hpp"
#include "mesh_option.hpp"
#include "variants.hpp"

namespace shard::meshes {

namespace {

struct FiveOptions {
  Option<Index> micro_batches{"--micro-batches", 4,
                              "Pieces of each device's sequences that follow one another"};
  Option<std::string> balance{"--balance", "contiguous",
                              "Positions of a device along context: contiguous, or zigzag"};

  FiveOptions() {
    micro_batches.expected = "a whole number from 1 to 4096";  // a schedule is a list of all of them
    micro_batches.accepts = [](const std::string& text) {
      return is_number(text, [](Index n) { return n >= 1 && n <= 4096; });
    };
    balance.type = "HOW";
    balance.expected = "contiguous or zigzag";
    balance.accepts = [](const std::string& text) { return text == "contiguous" || text == "zigzag"; };
  }
};
/// Made when they are first needed, since the chapter is registered before main.
const FiveOptions& options() {
  static const FiveOptions all;
  return all;
}

/// The mesh, with axes of one device for those that a variant does not have.
MeshShape with_all_axes(const MeshShape& shape) {
  std::vector<MeshAxis> axes = shape.axes();
  for (const std::string& name : FiveAxes::names())
    if (std::ranges::find(axes, name, &MeshAxis::name) == axes.end()) axes.push_back({name, 1});
  return MeshShape(axes);
}

CutSequences cut_of(const Options& o) {
  return o[options().balance] == "zigzag" ? SequenceCut::zigzag : SequenceCut::contiguous;
}

std::unique_ptr<ShardedEngine> make_engine(Communicator& group, const DecoderModel& m, const MeshShape& shape,
                                           const Options& o) {
  const CutSequences cut = cut_of(o);
  if (TensorHeads(m, shape.size(tensor::name)).divides_key_heads())
    return std::make_unique<Five<W<1>>>(group, shape, m, cut, o[options().micro_batches]);
  return std::make_unique<Five<R>>(group, shape, m, cut, o[options().micro_batches]);
}

void require_stages(const DecoderModel& m, const MeshShape& shape) {
  if (m.num_blocks < shape.size(pipeline::name))
    throw Error(Code::usage, fmt::format("pipeline: expected at least as many blocks as stages, {}, given {}",
                                         shape.size(pipeline::name), m.num_blocks));
}

/// Every factorisation once, with pieces of different sizes, and both cuts of sequences. With contiguous
/// ones, keys also go to devices that do not see them, where no fault is noticed: faults are planted on few
/// devices.
std::vector<Options> every_mesh(const MeshOption& mesh, const std::vector<std::string>& axes, int devices) {
  std::vector<Options> all = mesh.every(devices, axes);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = all[i].with(options().micro_batches, static_cast<Index>(i) % 3 + 1);
    if ((i % 2 == 1 || devices < 4) && std::ranges::find(axes, context::name) != axes.end())
      all[i] = all[i].with(options().balance, "zigzag");
  }
  return all;
}

/// The engine of five axes, of which a variant has these.
Variant decoder_over(const std::string& name, const std::string& summary,
                     const std::vector<std::string>& axes, bool is_mixture) {
  const MeshOption mesh(axes);
  auto shape = [mesh](int devices, const Options& o) { return with_all_axes(mesh.shape(devices, o)); };
  Variant v = mesh.without_engine(name, summary);
  v.make = [shape](Communicator& group, const Workload& w, const Options& o) {
    return make_engine(group, as_decoder(w).model(), shape(group.num_devices(), o), o);
  };
  v.options.push_back(options().micro_batches);
  if (std::ranges::find(axes, context::name) != axes.end()) v.options.push_back(options().balance);
  v.tested_on = [mesh, axes](int devices) { return every_mesh(mesh, axes, devices); };
  v.workload = &decoder(is_mixture ? usual_experts : 0);
  return that_requires(v, [shape](int devices, const Workload& w, const Options& o) {
    require_stages(as_decoder(w).model(), shape(devices, o));
  });
}

}  // namespace

std::vector<Variant> variants_of_five_axes() {
  return {
      decoder_over("five", "a mixture decoder: data, pipeline, context, expert and tensor at once",
                   FiveAxes::names(), true),
      decoder_over("decoder-data-pipeline-tensor", "a decoder: the same without context and expert",
                   {data::name, pipeline::name, tensor::name}, false),
      decoder_over("decoder-expert-data", "a mixture decoder: experts over expert, copies over data",
                   {data::name, experts::name}, true),
      {.name = "five-single",
       .summary = "the mixture decoder that these must equal, on one device",
       .make = [](Communicator& group, const Workload& w,
                  const Options&) { return std::make_unique<SingleDecoder>(group, as_decoder(w).model()); },
       .workload = &decoder(usual_experts),
       .is_reference = true}};
}

}  // namespace shard::meshes
