#pragma once

#include "costs.hpp"
#include "engine/chapter.hpp"
#include "zero1.hpp"
#include "zero2.hpp"
#include "zero3.hpp"

namespace shard {

inline Chapter this_chapter() {
  auto zero1 = [](const EngineOptions& o) { return std::make_unique<Zero1>(o.micro_batches); };
  auto zero2 = [](const EngineOptions& o) { return std::make_unique<Zero2>(o.micro_batches); };
  auto zero3 = [](const EngineOptions&) { return std::make_unique<Zero3>(); };
  return {
      "06",
      "fully sharded",
      {{"zero1", "the optimizer's state is divided", zero1, zero1_costs, /*has_micro_batches=*/true},
       {"zero2", "gradients too: reduced as soon as they are there", zero2, zero2_costs,
        /*has_micro_batches=*/true},
       {"zero3", "parameters too: gathered for use, and again in the backward pass", zero3, zero3_costs}}};
}

}  // namespace shard
