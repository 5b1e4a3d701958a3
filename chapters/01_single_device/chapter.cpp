#include "costs.hpp"
#include "engine/program/registry.hpp"
#include "single_device.hpp"

namespace shard::single_device {

const RegisteredChapter chapter({
    .workload = &mlp(),
    .variants = {{.name = "single",
                  .summary = "everything on one device",
                  .make = [](Communicator& group, const Workload&,
                             const Options&) { return std::make_unique<SingleDevice>(group); },
                  .costs = [](const Setting& s, const Options&) { return single_device_costs(s); }}},
});

}  // namespace shard::single_device
