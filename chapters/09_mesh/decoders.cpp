#include <algorithm>

#include "08_decoder/single.hpp"
#include "decoder_data_tensor.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "engine/workloads/decoder/options.hpp"
#include "five.hpp"
#include "variants.hpp"

namespace shard::meshes {

namespace {

std::unique_ptr<decoders::SingleDecoder> single_decoder(Communicator& group, const Workload& w) {
  return std::make_unique<decoders::SingleDecoder>(group, as_decoder(w).model());
}

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

/// \name Options. Each is made when it is first asked for: the registration in chapter.cpp runs before main, maybe before
/// this file's constants are made
/// @{
const Option<Index>& pieces_of_sequences() {
  static const Option<Index> number =
      micro_batches_option("Pieces of each device's sequences that follow one another");
  return number;
}
const Option<std::string>& balance() {
  static const Option<std::string> how = option_of(
      "--balance", "contiguous", "zigzag", "Positions of a device along context: contiguous, or zigzag");
  return how;
}
/// @}

/// The engine of five axes, of which a variant has these; the others have one device.
EnginePointer make_five(Communicator& group, const MeshShape& shape, const Workload& w, const Options& o) {
  std::vector<MeshAxis> axes = shape.axes();
  for (const std::string& name : FiveAxes::names())
    if (std::ranges::find(axes, name, &MeshAxis::name) == axes.end()) axes.push_back({name, 1});
  const bool is_zigzag = o[balance()] == "zigzag";
  return by_heads<Five>(group, MeshShape(axes), as_decoder(w).model(),
                        is_zigzag ? decoders::SequenceCut::zigzag : decoders::SequenceCut::contiguous,
                        o[pieces_of_sequences()]);
}
void require_stages_of_blocks(const MeshShape& mesh, const Workload& w, const Options&) {
  const auto axis = std::ranges::find(mesh.axes(), std::string(pipeline::name), &MeshAxis::name);
  if (axis != mesh.axes().end() && as_decoder(w).model().num_blocks < axis->size)
    throw Error(Code::usage, "pipeline: expected at least as many blocks as stages, {}, given {}", axis->size,
                as_decoder(w).model().num_blocks);
}
Variant decoder_over(const std::string& name, const std::string& summary,
                     const std::vector<std::string>& names, bool is_mixture) {
  Variant v = Axes(names).variant(name, summary, make_five, require_stages_of_blocks);
  v.options.push_back(pieces_of_sequences());
  if (std::ranges::find(names, context::name) != names.end()) v.options.push_back(balance());
  v.workload = &decoder(is_mixture ? usual_experts : 0);
  return v;
}
}  // namespace

std::vector<Variant> decoder_variants() {
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

}  // namespace shard::meshes
