#pragma once

#include "costs.hpp"
#include "data_parallel.hpp"
#include "engine/chapter.hpp"

namespace shard {

inline Chapter this_chapter() {
  auto make = [](const EngineOptions& options) { return std::make_unique<DataParallel>(options.micro_batches); };
  return {"02",
          "data parallel",
          {{"all-reduce", "every device has the model; one all-reduce per gradient", make, data_parallel_costs}},
          /*has_micro_batches=*/true};
}

}  // namespace shard
