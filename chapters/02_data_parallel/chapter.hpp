#pragma once

#include "bucketed.hpp"
#include "costs.hpp"
#include "data_parallel.hpp"
#include "engine/program/chapter.hpp"
#include "scatter_gather.hpp"

namespace shard {

inline Chapter this_chapter() {
  auto plain = [](Communicator& group, const EngineOptions& options) {
    return std::make_unique<DataParallel>(group, options.micro_batches);
  };
  auto bucketed = [](Communicator& group, const EngineOptions& options) {
    return std::make_unique<BucketedDataParallel>(group, options.bucket_bytes);
  };
  auto original = [](Communicator& group, const EngineOptions&) { return std::make_unique<ScatterGather>(group); };
  return {.number = "02",
          .title = "data parallel",
          .variants = {{"all-reduce", "every device has the model; one all-reduce per gradient", plain,
                        data_parallel_costs,
                        /*has_micro_batches=*/true},
                       {"bucketed", "gradients in buckets, reduced while earlier layers are differentiated",
                        bucketed, bucketed_costs,
                        /*has_micro_batches=*/false, /*has_buckets=*/true},
                       {"scatter-gather", "the original: device 0 sends the model and collects everything",
                        original, scatter_gather_costs}},
          .other_names = {{"ddp", "all-reduce"}, {"data", "all-reduce"}, {"ddp-bucketed", "bucketed"}}};
}

}  // namespace shard
