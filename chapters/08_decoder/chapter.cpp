#include "costs.hpp"
#include "engine/program/registry.hpp"
#include "engine/workloads/decoder.hpp"
#include "single.hpp"

namespace shard::decoders {

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
        },
});

}  // namespace shard::decoders
