#include "context.hpp"
#include "engine/program/registry.hpp"
#include "engine/workloads/decoder.hpp"
#include "single.hpp"
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
    .strategies = {{"cp", "context"},
                   {"context-parallel", "context"},
                   {"ring-attention", "context"},
                   {"deepspeed-ulysses", "ulysses"}},
});

}  // namespace shard::decoders
