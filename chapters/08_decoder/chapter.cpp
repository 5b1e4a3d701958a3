#include "engine/program/registry.hpp"
#include "engine/workloads/decoder.hpp"
#include "fsdp.hpp"
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
             .reference = "single"},
            {.name = "fsdp",
             .summary = "sequences divided, and every parameter: a block's are gathered a block ahead",
             .make =
                 [](Communicator& group, const Workload& w, const Options&) {
                   return std::make_unique<FsdpDecoder>(group, as_decoder(w).model());
                 },
             .reference = "single"},
        },
});

}  // namespace shard::decoders
