#pragma once

#include "costs.hpp"
#include "engine/program/chapter.hpp"
#include "pipeline.hpp"
#include "schedules.hpp"

namespace shard {

/// A pipeline with one of the schedules.
inline Variant pipeline_variant(
    const std::string& name, const std::string& summary, bool has_virtual_stages,
    std::function<Work(int devices, int virtual_stages, Index micro_batches)> work) {
  auto plan = [=](Index micro_batches, Index virtual_stages, const std::string& stages) {
    const int v = has_virtual_stages ? static_cast<int>(virtual_stages) : 1;
    return PipelinePlan{[=](int devices, Index m) { return work(devices, v, m); }, micro_batches, v, stages};
  };
  auto make = [=](Communicator& group, const EngineOptions& o) {
    return std::make_unique<Pipeline>(group, plan(o.micro_batches, o.virtual_stages, o.stages));
  };
  auto costs = [=](const Setting& s) {
    const PipelinePlan p = plan(s.micro_batches, s.virtual_stages, s.stages);
    const int count = s.devices * p.virtual_stages;
    const Schedule schedule = with_messages(count, s.micro_batches, p.work(s.devices, s.micro_batches));
    return pipeline_costs(s, schedule, cut_into_stages(s.model, count, s.stages));
  };
  Variant variant{name, summary, make, costs};
  variant.has_micro_batches = true;
  variant.has_stages = true;
  variant.has_virtual_stages = has_virtual_stages;
  return variant;
}

inline Chapter this_chapter() {
  Chapter chapter{"04", "pipeline", {}};
  auto add = [&](const std::string& name, const std::string& summary, Work (*work)(int, Index)) {
    chapter.variants.push_back(
        pipeline_variant(name, summary, false, [=](int k, int, Index m) { return work(k, m); }));
  };
  add("1f1b", "one forward, one backward, after a warm-up", one_forward_one_backward);
  add("gpipe", "all forwards, then all backwards", gpipe);
  add("naive", "one micro-batch at a time through all stages", naive);
  add("zero-bubble", "the backward pass in two halves, one of which fills gaps (ZB-H1)", zero_bubble);
  chapter.variants.push_back(
      pipeline_variant("interleaved", "1F1B with several stages a device", true, interleaved));
  chapter.defaults.micro_batches = 8;
  chapter.other_names = {{"pipeline", "1f1b"}, {"zb-h1", "zero-bubble"}};
  return chapter;
}

}  // namespace shard
