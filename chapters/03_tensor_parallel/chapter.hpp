#pragma once

#include "costs.hpp"
#include "engine/program/chapter.hpp"
#include "row_column.hpp"
#include "sequence.hpp"
#include "tensor_parallel.hpp"

namespace shard {

inline Chapter this_chapter() {
  auto column_row = [](Communicator& group, const EngineOptions&) { return std::make_unique<TensorParallel>(group); };
  auto sequence = [](Communicator& group, const EngineOptions&) { return std::make_unique<SequenceParallel>(group); };
  auto row_column = [](Communicator& group, const EngineOptions&) { return std::make_unique<RowColumnParallel>(group); };
  return {.number = "03",
          .title = "tensor parallel",
          .variants = {{"column-row", "layer 0 by columns, layer 1 by rows; one all-reduce a block",
                        column_row, tensor_parallel_costs},
                       {"sequence", "the all-reduce in its two halves; activations between blocks divided",
                        sequence, sequence_costs},
                       {"row-column", "the other cut: a wide all-reduce before the ReLU", row_column,
                        row_column_costs}},
          .other_names = {{"tensor", "column-row"}}};
}

}  // namespace shard
