#include "costs.hpp"
#include "engine/program/registry.hpp"
#include "engine/workloads/decoder.hpp"
#include "single.hpp"
#include "tensor.hpp"
#include "tensor_options.hpp"
#include "tensor_sequence.hpp"

namespace shard::decoders {

/// The form of an engine that divides key-value heads, if every device can have one.
template <template <class> class Engine>
std::unique_ptr<ShardedEngine> by_heads(Communicator& group, const DecoderModel& m) {
  if (TensorHeads(m, group.num_devices()).divides_key_heads())
    return std::make_unique<Engine<Sharded<1>>>(group, m);
  return std::make_unique<Engine<Replicated>>(group, m);
}

const RegisteredChapter chapter({
    .workload = &decoder(),
    .variants =
        {
            {.name = "single",
             .summary = "one device: nothing is divided",
             .make =
                 [](Communicator& group, const Workload& w, const Options&) {
                   return std::make_unique<SingleDecoder>(group, as_decoder(w).model());
                 },
             .costs = [](const Setting& s, const Options&) { return single_costs(s); },
             .reference = "single"},
            {.name = "tensor",
             .summary = "heads, hidden units and the vocabulary divided; four all-reduces a block",
             .make =
                 [](Communicator& group, const Workload& w, const Options& o) {
                   const DecoderModel& m = as_decoder(w).model();
                   return o[sequence_parallel] == "yes" ? by_heads<TensorSequenceDecoder>(group, m)
                                                        : by_heads<TensorDecoder>(group, m);
                 },
             .options = {sequence_parallel},
             .tested_with = {Options(), Options().with(sequence_parallel, "yes")},
             .reference = "single"},
        },
    .strategies = {{"megatron-lm", "tensor"}},
});

}  // namespace shard::decoders
