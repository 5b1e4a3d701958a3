#include "costs.hpp"
#include "engine/program/registry.hpp"
#include "keep.hpp"
#include "prefetch.hpp"
#include "zero1.hpp"
#include "zero2.hpp"
#include "zero3.hpp"

namespace shard::fully_sharded {

const Option<Index> micro_batches("--micro-batches", 1, "Pieces in which a device works through its rows");

const Option<std::string> reduce_in = [] {
  Option<std::string> option(
      "--reduce-in", "float32",
      "Precision of the addends of gradients that are sent: float32, or bf16 with --precision bf16", "HOW");
  option.expected = "float32 or bf16";
  option.accepts = [](const std::string& text) { return text == "float32" || text == "bf16"; };
  return option;
}();

bool in_bf16(const Options& o) {
  return o[reduce_in] == "bf16";
}

template <class Engine, class... Settings>
std::unique_ptr<Engine> made(Communicator& group, const Options& o, Settings... settings) {
  auto engine = std::make_unique<Engine>(group, settings...);
  engine->reduce_in_bf16(in_bf16(o));
  return engine;
}

void require_bf16_products(int, const Workload&, const Options& o) {
  if (in_bf16(o) && precision() != Precision::bf16)
    throw Error(Code::usage, std::string("--reduce-in bf16: expected --precision bf16, given --precision ") +
                                 (precision() == Precision::tf32 ? "tf32" : "float32"));
}

const RegisteredChapter chapter({
    .workload = &mlp(),
    .variants =
        {
            {.name = "zero1",
             .summary = "the optimizer's state is divided",
             .make = [](Communicator& group, const Workload&,
                        const Options& o) { return made<Zero1>(group, o, o[micro_batches]); },
             .costs = [](const Setting& s,
                         const Options& o) { return zero1_costs(s, o[micro_batches], in_bf16(o)); },
             .options = {micro_batches, reduce_in},
             .require = require_bf16_products},
            {.name = "zero2",
             .summary = "gradients too: each layer's is reduced as soon as it is there",
             .make = [](Communicator& group, const Workload&,
                        const Options& o) { return made<Zero2>(group, o, o[micro_batches]); },
             .costs = [](const Setting& s,
                         const Options& o) { return zero2_costs(s, o[micro_batches], in_bf16(o)); },
             .options = {micro_batches, reduce_in},
             .require = require_bf16_products},
            {.name = "zero3",
             .summary = "parameters too: gathered for use, then freed, forward and backward",
             .make = [](Communicator& group, const Workload&,
                        const Options& o) { return made<Zero3>(group, o, o[micro_batches]); },
             .costs = [](const Setting& s,
                         const Options& o) { return zero3_costs(s, o[micro_batches], in_bf16(o)); },
             .options = {micro_batches, reduce_in},
             .require = require_bf16_products},
            {.name = "zero3-keep",
             .summary = "gathered once, and kept from forward to backward",
             .make = [](Communicator& group, const Workload&,
                        const Options& o) { return made<Zero3Keep>(group, o); },
             .costs = [](const Setting& s, const Options& o) { return zero3_keep_costs(s, in_bf16(o)); },
             .options = {reduce_in},
             .require = require_bf16_products},
            {.name = "zero3-prefetch",
             .summary = "the next layer's gather and the last one's reduction behind computing",
             .make = [](Communicator& group, const Workload&,
                        const Options&) { return std::make_unique<Zero3Prefetch>(group); },
             .costs = [](const Setting& s, const Options&) { return zero3_prefetch_costs(s); }},
        },
    .strategies = {{"fsdp", "zero3"},
                   {"fsdp2", "zero3"},
                   {"zero", "zero3"},
                   {"deepspeed", "zero3"},
                   {"full-shard", "zero3"},
                   {"shard-grad-op", "zero3-keep"}},
});

}  // namespace shard::fully_sharded
