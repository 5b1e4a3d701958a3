#include "context.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "ulysses.hpp"
#include "variants.hpp"

namespace shard::decoders {

namespace {

const Option<std::string>& balance() {
  static const Option<std::string> how =
      option_of("--balance", "contiguous", "zigzag",
                "Tokens of a device: contiguous, or zigzag, an early and a late part of a sequence");
  return how;
}
CutSequences cut_of(const Options& o) {
  return o[balance()] == "zigzag" ? SequenceCut::zigzag : SequenceCut::contiguous;
}

}  // namespace

std::vector<Variant> sequence_variants() {
  return {{.name = "context",
           .summary = "sequences are divided; keys and values travel around a ring",
           .make =
               [](Communicator& group, const Workload& w, const Options& o) {
                 return std::make_unique<ContextDecoder>(group, as_decoder(w).model(), cut_of(o));
               },
           .options = {balance()}},
          {.name = "ulysses",
           .summary = "sequences are divided; an all-to-all divides heads for attention",
           .make = [](Communicator& group, const Workload& w, const Options&) {
             return std::make_unique<UlyssesDecoder>(group, as_decoder(w).model());
           }}};
}

}  // namespace shard::decoders
