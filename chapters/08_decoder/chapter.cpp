#include "engine/program/registry.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "engine/workloads/decoder/options.hpp"
#include "experts.hpp"
#include "fsdp.hpp"
#include "layers.hpp"
#include "single.hpp"
#include "tensor.hpp"
#include "variants.hpp"

namespace shard::decoders {

using EnginePointer = std::unique_ptr<ShardedEngine>;

/// Makes an engine that takes nothing but the model.
template <class Engine>
EnginePointer made(Communicator& group, const Workload& w, const Options&) {
  return std::make_unique<Engine>(group, as_decoder(w).model());
}

const Option<std::string> sequence_parallel = option_of(
    "--sequence-parallel", "no", "yes", "Divide the tokens between the parts of a block: yes or no");
/// The form that divides key-value heads, if every device can have one.
template <Layout X>
EnginePointer tensor_decoder(Communicator& group, const DecoderModel& m) {
  if (TensorHeads(m, group.num_devices()).divides_key_heads())
    return std::make_unique<TensorDecoder<Sharded<1>, X>>(group, m);
  return std::make_unique<TensorDecoder<Replicated, X>>(group, m);
}

EnginePointer made_tensor(Communicator& group, const Workload& w, const Options& o) {
  const DecoderModel& m = as_decoder(w).model();
  return o[sequence_parallel] == "yes" ? tensor_decoder<Sharded<0>>(group, m)
                                       : tensor_decoder<Replicated>(group, m);
}
void require_mixture(int, const Workload& w, const Options&) {
  if (!as_decoder(w).model().is_mixture())
    throw Error(Code::usage, "--experts: expected 1 or more with the variant experts, given 0");
}

/// All variants, in the order of --help.
std::vector<Variant> variants() {
  std::vector<Variant> all = {
      {.name = "tensor",
       .summary = "heads, hidden units and the vocabulary divided; four all-reduces a block",
       .make = made_tensor,
       .options = {sequence_parallel}},
      {.name = "experts",
       .summary = "sequences divided, and a mixture's experts, to which tokens are sent",
       .make = made<ExpertsDecoder>,
       .require = require_mixture,
       .workload = &decoder(usual_experts)},
      {.name = "fsdp",
       .summary = "sequences divided, and every parameter: a block's are gathered a block ahead",
       .make = made<FsdpDecoder>},
      {.name = "layers",
       .summary = "blocks divided; activations go from device to device, one forward, one backward",
       .make =
           [](Communicator& group, const Workload& w, const Options& o) {
             return std::make_unique<LayersDecoder>(group, as_decoder(w).model(), o[split()],
                                                    o[micro_batches()]);
           },
       .options = {split(), micro_batches()},
       .require = [](int devices, const Workload& w,
                     const Options& o) { split_blocks(as_decoder(w).model(), devices, o[split()]); }},
      {.name = "single",
       .summary = "one device: nothing is divided",
       .make = made<SingleDecoder>,
       .is_reference = true},
  };
  const std::vector<Variant> of_sequences = sequence_variants(), of_t5 = t5_variants();
  all.insert(all.begin() + 1, of_sequences.begin(), of_sequences.end());
  all.insert(all.end(), of_t5.begin(), of_t5.end());
  return all;
}

const RegisteredChapter chapter({
    .workload = &decoder(),
    .variants = variants(),
    .strategies = {{"megatron-lm", "tensor"},
                   {"cp", "context"},
                   {"context-parallel", "context"},
                   {"ring-attention", "context"},
                   {"deepspeed-ulysses", "ulysses"}},
});

}  // namespace shard::decoders
