#include "costs.hpp"
#include "engine/program/registry.hpp"
#include "keep.hpp"
#include "prefetch.hpp"
#include "zero1.hpp"
#include "zero2.hpp"
#include "zero3.hpp"

namespace shard::fully_sharded {

const Option<Index> micro_batches("--micro-batches", 1, "Pieces in which a device works through its rows");

const RegisteredChapter chapter({
    .workload = &mlp(),
    .variants =
        {
            {.name = "zero1",
             .summary = "the optimizer's state is divided",
             .make = [](Communicator& group, const Workload&,
                        const Options& o) { return std::make_unique<Zero1>(group, o[micro_batches]); },
             .costs = [](const Setting& s, const Options& o) { return zero1_costs(s, o[micro_batches]); },
             .options = {micro_batches}},
            {.name = "zero2",
             .summary = "gradients too: each layer's is reduced as soon as it is there",
             .make = [](Communicator& group, const Workload&,
                        const Options& o) { return std::make_unique<Zero2>(group, o[micro_batches]); },
             .costs = [](const Setting& s, const Options& o) { return zero2_costs(s, o[micro_batches]); },
             .options = {micro_batches}},
            {.name = "zero3",
             .summary = "parameters too: gathered for use, then freed, forward and backward",
             .make = [](Communicator& group, const Workload&,
                        const Options& o) { return std::make_unique<Zero3>(group, o[micro_batches]); },
             .costs = [](const Setting& s, const Options& o) { return zero3_costs(s, o[micro_batches]); },
             .options = {micro_batches}},
            {.name = "zero3-keep",
             .summary = "gathered once, and kept from forward to backward",
             .make = [](Communicator& group, const Workload&,
                        const Options&) { return std::make_unique<Zero3Keep>(group); },
             .costs = [](const Setting& s, const Options&) { return zero3_keep_costs(s); }},
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
