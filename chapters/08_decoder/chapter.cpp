#include "context.hpp"
#include "engine/program/registry.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "engine/workloads/decoder/options.hpp"
#include "engine/workloads/t5/t5.hpp"
#include "experts.hpp"
#include "fsdp.hpp"
#include "layers.hpp"
#include "single.hpp"
#include "t5.hpp"
#include "t5_layers.hpp"
#include "tensor.hpp"
#include "ulysses.hpp"

namespace shard::decoders {

using EnginePointer = std::unique_ptr<ShardedEngine>;

/// Makes an engine that takes nothing but the model.
/// @{
template <class Engine>
EnginePointer made(Communicator& group, const Workload& w, const Options&) {
  return std::make_unique<Engine>(group, as_decoder(w).model());
}
template <class Engine>
EnginePointer made_t5(Communicator& group, const Workload& w, const Options&) {
  return std::make_unique<Engine>(group, as_t5(w).model());
}
/// @}

const Option<std::string> balance =
    option_of("--balance", "contiguous", "zigzag",
              "Tokens of a device: contiguous, or zigzag, an early and a late part of a sequence");
CutSequences cut_of(const Options& o) {
  return o[balance] == "zigzag" ? SequenceCut::zigzag : SequenceCut::contiguous;
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
const Option<Index> micro_batches = micro_batches_option("Pieces of the batch that follow one another");
const Option<std::string> split = [] {
  Option<std::string> how("--split", "even",
                          "Which blocks a device has: even, by bytes, or a list of how many such as 3,1,1");
  how.type = "HOW";
  return how;
}();

const RegisteredChapter chapter({
    .workload = &decoder(),
    .variants =
        {
            {.name = "tensor",
             .summary = "heads, hidden units and the vocabulary divided; four all-reduces a block",
             .make =
                 [](Communicator& group, const Workload& w, const Options& o) {
                   const DecoderModel& m = as_decoder(w).model();
                   return o[sequence_parallel] == "yes" ? tensor_decoder<Sharded<0>>(group, m)
                                                        : tensor_decoder<Replicated>(group, m);
                 },
             .options = {sequence_parallel},
             .tested_with = {Options(), Options().with(sequence_parallel, "yes")}},
            {.name = "context",
             .summary = "sequences are divided; keys and values travel around a ring",
             .make =
                 [](Communicator& group, const Workload& w, const Options& o) {
                   return std::make_unique<ContextDecoder>(group, as_decoder(w).model(), cut_of(o));
                 },
             .options = {balance},
             .tested_with = {Options(), Options().with(balance, "zigzag")}},
            {.name = "ulysses",
             .summary = "sequences are divided; an all-to-all divides heads for attention",
             .make = made<UlyssesDecoder>},
            {.name = "experts",
             .summary = "sequences divided, and a mixture's experts, to which tokens are sent",
             .make = made<ExpertsDecoder>,
             .require =
                 [](int, const Workload& w, const Options&) {
                   if (!as_decoder(w).model().is_mixture())
                     throw Error(Code::usage,
                                 "--experts: expected 1 or more with the variant experts, given 0");
                 },
             .workload = &decoder(usual_experts)},
            {.name = "fsdp",
             .summary = "sequences divided, and every parameter: a block's are gathered a block ahead",
             .make = made<FsdpDecoder>},
            {.name = "layers",
             .summary = "blocks divided; activations go from device to device, one forward, one backward",
             .make =
                 [](Communicator& group, const Workload& w, const Options& o) {
                   return std::make_unique<LayersDecoder>(group, as_decoder(w).model(), o[split],
                                                          o[micro_batches]);
                 },
             .options = {split, micro_batches},
             .tested_with = {Options().with(micro_batches, 1),
                             Options().with(split, "bytes").with(micro_batches, 5),
                             Options().with(micro_batches, 2)},
             .require = [](int devices, const Workload& w,
                           const Options& o) { split_blocks(as_decoder(w).model(), devices, o[split]); }},
            {.name = "single",
             .summary = "one device: nothing is divided",
             .make = made<SingleDecoder>,
             .is_reference = true},
            {.name = "t5-single",
             .summary = "an encoder-decoder on one device: nothing is divided",
             .make = made_t5<T5Single>,
             .workload = &t5(),
             .is_reference = true},
            {.name = "t5-tensor",
             .summary = "an encoder-decoder with heads, hidden units and the vocabulary divided",
             .make = made_t5<T5Tensor>,
             .workload = &t5()},
            {.name = "t5-layers",
             .summary = "an encoder-decoder with blocks divided, the encoder's first; as layers",
             .make =
                 [](Communicator& group, const Workload& w, const Options& o) {
                   return std::make_unique<T5Layers>(group, as_t5(w).model(), o[split], o[micro_batches]);
                 },
             .options = {split, micro_batches},
             .tested_with = {Options().with(micro_batches, 1),
                             Options().with(split, "bytes").with(micro_batches, 5),
                             Options().with(micro_batches, 2)},
             .require = [](int devices, const Workload& w,
                           const Options& o) { T5Split(as_t5(w).model(), devices, o[split]); },
             .workload = &t5()},
        },
    .strategies = {{"megatron-lm", "tensor"},
                   {"cp", "context"},
                   {"context-parallel", "context"},
                   {"ring-attention", "context"},
                   {"deepspeed-ulysses", "ulysses"}},
});

}  // namespace shard::decoders
