#pragma once

#include "costs.hpp"
#include "engine/program/chapter.hpp"
#include "keep.hpp"
#include "prefetch.hpp"
#include "zero1.hpp"
#include "zero2.hpp"
#include "zero3.hpp"

namespace shard {

inline Chapter this_chapter() {
  auto zero1 = [](Communicator& group, const EngineOptions& o) { return std::make_unique<Zero1>(group, o.micro_batches); };
  auto zero2 = [](Communicator& group, const EngineOptions& o) { return std::make_unique<Zero2>(group, o.micro_batches); };
  auto zero3 = [](Communicator& group, const EngineOptions& o) { return std::make_unique<Zero3>(group, o.micro_batches); };
  auto keep = [](Communicator& group, const EngineOptions&) { return std::make_unique<Zero3Keep>(group); };
  auto prefetch = [](Communicator& group, const EngineOptions&) { return std::make_unique<Zero3Prefetch>(group); };
  return {
      .number = "06",
      .title = "fully sharded",
      .variants = {{"zero1", "the optimizer's state is divided", zero1, zero1_costs,
                    /*has_micro_batches=*/true},
                   {"zero2", "gradients too: each layer's is reduced as soon as it is there", zero2,
                    zero2_costs,
                    /*has_micro_batches=*/true},
                   {"zero3", "parameters too: gathered for use, then freed, forward and backward", zero3,
                    zero3_costs,
                    /*has_micro_batches=*/true},
                   {"zero3-keep", "gathered once, and kept from forward to backward", keep, zero3_keep_costs},
                   {"zero3-prefetch", "the next layer's gather and the last one's reduction behind computing",
                    prefetch, zero3_prefetch_costs}},
      .other_names = {{"fsdp", "zero3"}}};
}

}  // namespace shard
