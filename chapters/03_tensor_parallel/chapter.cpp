#include "costs.hpp"
#include "engine/program/registry.hpp"
#include "row_column.hpp"
#include "sequence.hpp"
#include "tensor_parallel.hpp"

namespace shard::tensor_parallel {

/// A block of two layers is cut together.
const auto blocks_of_two = [](int, const Workload& network, const Options&) { require_blocks(network); };

const RegisteredChapter chapter({
    .workload = &mlp(),
    .variants =
        {
            {.name = "column-row",
             .summary = "layer 0 by columns, layer 1 by rows; one all-reduce a block",
             .make = [](Communicator& group, const Workload&,
                        const Options&) { return std::make_unique<TensorParallel>(group); },
             .costs = [](const Setting& s, const Options&) { return tensor_parallel_costs(s); },
             .require = blocks_of_two},
            {.name = "sequence",
             .summary = "the all-reduce in its two halves; activations between blocks divided",
             .make = [](Communicator& group, const Workload&,
                        const Options&) { return std::make_unique<SequenceParallel>(group); },
             .costs = [](const Setting& s, const Options&) { return sequence_costs(s); },
             .require = blocks_of_two},
            {.name = "row-column",
             .summary = "the other cut: a wide all-reduce before the ReLU",
             .make = [](Communicator& group, const Workload&,
                        const Options&) { return std::make_unique<RowColumnParallel>(group); },
             .costs = [](const Setting& s, const Options&) { return row_column_costs(s); },
             .require = blocks_of_two},
        },
    .strategies = {{"tp", "column-row"},
                   {"tensor", "column-row"},
                   {"megatron", "column-row"},
                   {"sp", "sequence"},
                   {"megatron-sp", "sequence"}},
});

}  // namespace shard::tensor_parallel
