#include "context.hpp"
#include "costs.hpp"
#include "engine/program/registry.hpp"
#include "engine/workloads/decoder.hpp"
#include "single.hpp"
#include "tensor.hpp"
#include "tensor_options.hpp"
#include "tensor_sequence.hpp"
#include "ulysses.hpp"

namespace shard::decoders {

const Option<std::string> balance = [] {
  Option<std::string> how(
      "--balance", "contiguous",
      "Tokens of a device: contiguous, or zigzag, an early and a late part of a sequence");
  how.type = "HOW";
  how.expected = "contiguous or zigzag";
  how.accepts = [](const std::string& text) { return text == "contiguous" || text == "zigzag"; };
  return how;
}();
CutSequences cut_of(const Options& o) {
  return o[balance] == "zigzag" ? SequenceCut::zigzag : SequenceCut::contiguous;
}

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
            {.name = "context",
             .summary = "sequences are divided; keys and values travel around a ring",
             .make =
                 [](Communicator& group, const Workload& w, const Options& o) {
                   return std::make_unique<ContextDecoder>(group, as_decoder(w).model(), cut_of(o));
                 },
             .options = {balance},
             .tested_with = {Options(), Options().with(balance, "zigzag")},
             .reference = "single"},
            {.name = "ulysses",
             .summary = "sequences are divided; an all-to-all divides heads for attention",
             .make =
                 [](Communicator& group, const Workload& w, const Options&) {
                   return std::make_unique<UlyssesDecoder>(group, as_decoder(w).model());
                 },
             .reference = "single"},
        },
    .strategies = {{"megatron-lm", "tensor"},
                   {"cp", "context"},
                   {"context-parallel", "context"},
                   {"ring-attention", "context"},
                   {"deepspeed-ulysses", "ulysses"}},
});

}  // namespace shard::decoders
