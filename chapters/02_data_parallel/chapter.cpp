#include "accumulated.hpp"
#include "bucketed.hpp"
#include "data_parallel.hpp"
#include "engine/program/registry.hpp"
#include "scatter_gather.hpp"
#include "scatter_gather_costs.hpp"

namespace shard::data_parallel {

const Option<Index> micro_batches("--micro-batches", 4, "Pieces in which a device works through its rows");
const Option<Index> bucket_bytes("--bucket-bytes", Index{1} << 20,
                                 "Gradients of this size go into one all-reduce");

const RegisteredChapter chapter({
    .workload = &mlp(),
    .variants =
        {
            {.name = "all-reduce",
             .summary = "every device has the model; one all-reduce per gradient",
             .make = [](Communicator& group, const Workload&,
                        const Options&) { return std::make_unique<DataParallel>(group); },
             .costs = [](const Setting& s, const Options&) { return data_parallel_costs(s); }},
            {.name = "accumulated",
             .summary = "each device's rows in pieces; their gradients added, and reduced once",
             .make =
                 [](Communicator& group, const Workload&, const Options& o) {
                   return std::make_unique<AccumulatedDataParallel>(group, o[micro_batches]);
                 },
             .costs = [](const Setting& s,
                         const Options& o) { return accumulated_costs(s, o[micro_batches]); },
             .options = {micro_batches}},
            {.name = "bucketed",
             .summary = "gradients in buckets, reduced while earlier layers are differentiated",
             .make =
                 [](Communicator& group, const Workload&, const Options& o) {
                   return std::make_unique<BucketedDataParallel>(group, o[bucket_bytes]);
                 },
             .costs = [](const Setting& s, const Options& o) { return bucketed_costs(s, o[bucket_bytes]); },
             .options = {bucket_bytes}},
            {.name = "scatter-gather",
             .summary = "the original: device 0 sends the model and collects everything",
             .make = [](Communicator& group, const Workload&,
                        const Options&) { return std::make_unique<ScatterGather>(group); },
             .costs = [](const Setting& s, const Options&) { return scatter_gather_costs(s); }},
        },
    .strategies = {{"ddp", "all-reduce"},
                   {"dp", "all-reduce"},
                   {"data", "all-reduce"},
                   {"ddp-accumulated", "accumulated"},
                   {"ddp-bucketed", "bucketed"},
                   {"dataparallel", "scatter-gather"}},
});

}  // namespace shard::data_parallel
