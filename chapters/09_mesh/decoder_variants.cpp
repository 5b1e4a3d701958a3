#include "08_decoder/single.hpp"
#include "decoder_data_tensor.hpp"
#include "decoder_fsdp_tensor.hpp"
#include "engine/workloads/decoder.hpp"
#include "mesh_option.hpp"
#include "variants.hpp"

namespace shard::meshes {

namespace {

/// A decoder on a mesh. The engine's form divides key-value heads, if every device along tensor can have one.
template <template <class> class Engine>
Variant decoder_on_mesh(const std::string& name, const std::string& summary) {
  const MeshOption mesh(DataTensorAxes::names());
  Variant v = mesh.without_engine(name, summary);
  v.make = [mesh](Communicator& group, const Workload& w,
                  const Options& o) -> std::unique_ptr<ShardedEngine> {
    const DecoderModel& m = as_decoder(w).model();
    const MeshShape shape = mesh.shape(group.num_devices(), o);
    if (decoders::TensorHeads(m, shape.size(tensor::name)).divides_key_heads())
      return std::make_unique<Engine<W<1>>>(group, shape, m);
    return std::make_unique<Engine<R>>(group, shape, m);
  };
  v.workload = &decoder();
  return v;
}

}  // namespace

std::vector<Variant> variants_of_decoders() {
  return {decoder_on_mesh<DecoderDataTensor>(
              "decoder-data-tensor", "a decoder: sequences over data, heads and hidden units over tensor"),
          decoder_on_mesh<DecoderFsdpTensor>(
              "decoder-fsdp-tensor", "the same, with parameters over both, a block gathered at a time"),
          {.name = "decoder-single",
           .summary = "the decoder that these must equal, on one device",
           .make =
               [](Communicator& group, const Workload& w, const Options&) {
                 return std::make_unique<decoders::SingleDecoder>(group, as_decoder(w).model());
               },
           .workload = &decoder(),
           .is_reference = true}};
}

}  // namespace shard::meshes
