#include "costs.hpp"
#include "engine/program/registry.hpp"
#include "engine/schedules/schedules.hpp"
#include "pipeline.hpp"

namespace shard::pipeline {

const Option<Index> micro_batches("--micro-batches", 8, "Pieces of the batch that follow one another");
constexpr Index most_micro_batches = 4096;  // a schedule is a list of all of them
const Option<Index> virtual_stages("--virtual-stages", 2, "Stages a device");
const Option<std::string> stages = [] {
  Option<std::string> how(
      "--stages", "equal",
      "How layers are cut into stages: equal, by flops or bytes, or a list such as 3,2,2,1");
  how.type = "HOW";
  return how;
}();

/// Which device works on what in which order, for a number of stages on each device.
using WorkOf = Work (*)(int devices, int stages_a_device, Index micro_batches);

/// A pipeline with one of the schedules; `a_device` says how many stages a device has.
Variant variant(const std::string& name, const std::string& summary, WorkOf work,
                int (*a_device)(const Options&)) {
  Variant v;
  v.name = name;
  v.summary = summary;
  v.make = [=](Communicator& group, const Workload&, const Options& o) {
    const int each = a_device(o);
    return std::make_unique<Pipeline>(
        group, PipelinePlan{[=](int devices, Index m) { return work(devices, each, m); }, o[micro_batches],
                            each, o[stages]});
  };
  v.costs = [=](const Setting& s, const Options& o) {
    const int count = s.devices * a_device(o);
    const Work all = work(s.devices, a_device(o), o[micro_batches]);
    return pipeline_costs(s, with_messages(count, o[micro_batches], all),
                          cut_into_stages(MlpSetting(s).model, count, o[stages]));
  };
  v.require = [=](int devices, const Workload& network, const Options& o) {
    if (o[micro_batches] > most_micro_batches)
      throw Error(Code::usage, "--micro-batches: expected at most {}, given {}", most_micro_batches,
                  o[micro_batches]);
    Setting setting{.workload = &network};
    cut_into_stages(MlpSetting(setting).model, devices * a_device(o), o[stages]);
  };
  v.options = {micro_batches, stages};
  return v;
}

/// One stage a device.
int one(const Options&) {
  return 1;
}
template <Work (*work)(int devices, Index micro_batches)>
Work of_one(int devices, int, Index m) {
  return work(devices, m);
}

Variant interleaved_variant() {
  Variant v = variant("interleaved", "1F1B with several stages a device", interleaved,
                      [](const Options& o) { return static_cast<int>(o[virtual_stages]); });
  v.options.push_back(virtual_stages);
  return v;
}

const RegisteredChapter chapter({
    .workload = &mlp(),
    .variants = {variant("1f1b", "one forward, one backward, after a warm-up",
                         of_one<one_forward_one_backward>, one),
                 variant("gpipe", "all forwards, then all backwards", of_one<gpipe>, one),
                 variant("naive", "one micro-batch at a time through all stages", of_one<naive>, one),
                 variant("zero-bubble", "the backward pass in two halves, one of which fills gaps (ZB-H1)",
                         of_one<zero_bubble>, one),
                 interleaved_variant()},
    .strategies = {{"pp", "1f1b"},
                   {"pipeline", "1f1b"},
                   {"pipedream", "1f1b"},
                   {"zb-h1", "zero-bubble"},
                   {"zb", "zero-bubble"},
                   {"vpp", "interleaved"}},
});

}  // namespace shard::pipeline
