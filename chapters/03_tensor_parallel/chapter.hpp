#pragma once

#include "costs.hpp"
#include "engine/chapter.hpp"
#include "tensor_parallel.hpp"

namespace shard {

inline Chapter this_chapter() {
  auto make = [](const EngineOptions&) { return std::make_unique<TensorParallel>(); };
  return {"03",
          "tensor parallel",
          {{"column-row", "layer 0 by columns, layer 1 by rows; one all-reduce a block", make, tensor_parallel_costs}}};
}

}  // namespace shard
