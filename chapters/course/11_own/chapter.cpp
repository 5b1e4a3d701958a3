#include "engine/program/registry.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "own.hpp"

namespace shard::own {

const RegisteredChapter chapter({
    .workload = &mlp(),
    .variants = {{.name = "own",
                  .summary = "a strategy of your own, for blocks of two layers",
                  .make = [](Communicator& group, const Workload&,
                             const Options&) { return std::make_unique<Own>(group); },
                  .require = [](int, const Workload& network, const Options&) { require_blocks(network); }}},
});

}  // namespace shard::own
