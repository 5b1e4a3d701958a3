#include "context.hpp"
#include "engine/program/registry.hpp"
#include "engine/workloads/decoder.hpp"
#include "single.hpp"
#include "ulysses.hpp"

namespace shard::decoders {

const Option<std::string> balance = [] {
  Option<std::string> how(
      "--balance", "contiguous",
      "Which tokens of a sequence a device takes: one part of N, contiguous, or zigzag: parts "
      "i and 2N-1-i of 2N");
  how.type = "HOW";
  how.expected = "contiguous or zigzag";
  how.accepts = [](const std::string& text) { return text == "contiguous" || text == "zigzag"; };
  return how;
}();

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
                   return std::make_unique<ContextDecoder>(
                       group, as_decoder(w).model(),
                       o[balance] == "zigzag" ? SequenceCut::zigzag : SequenceCut::contiguous);
                 },
             .options = {balance},
             .tested_with = {Options().with(balance, "zigzag"), Options()},
             .reference = "single"},
            {.name = "ulysses",
             .summary = "sequences are divided; an all-to-all divides heads for attention",
             .make =
                 [](Communicator& group, const Workload& w, const Options&) {
                   return std::make_unique<UlyssesDecoder>(group, as_decoder(w).model());
                 },
             .reference = "single"},
        },
    .strategies = {{"cp", "context"}, {"ring-attention", "context"}, {"deepspeed-ulysses", "ulysses"}},
});

}  // namespace shard::decoders
