// Prints what a step takes on each device: of each variant, with each of its options, on each of its networks. The
// program is built for each backend, and for tensors without memory (emu/meta/), which must print the same.

#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "engine/device/books/memory.hpp"
#include "engine/program/commands/costs_of_step.hpp"
#include "tests/equivalence/networks.hpp"
#include "tests/equivalence/tested_options.hpp"

namespace shard {
namespace {

/// \throws Error internal if a device of a mesh has sent more, or less, than along all axes
void print_costs(const std::string& chapter, const Run& run, int devices) {
  const std::vector<CostsOfStep> all = costs_of_step(run, devices);
  for (std::size_t device = 0; device < all.size(); ++device) {
    const CostsOfStep& c = all[device];
    const std::string options = run.options.describe();
    fmt::print("{} {}{}{}; {}, batch {}; device {}; {} {} {} {} {} {} {} {} {}", chapter, run.variant.name,
               options.empty() ? "" : " ", options, run.network.describe(), run.training.batch, device,
               c.parameters, c.gradients, c.state, c.activations, c.buffers, c.peak, c.operations,
               c.sent.bytes, c.sent.messages);
    Traffic along;
    for (const auto& [axes, sent] : c.along) {
      fmt::print(", {} {} in {}", axes, sent.bytes, sent.messages);
      along += sent;
    }
    fmt::print("\n");
    if (!c.along.empty() && along != c.sent)
      throw Error(Code::internal, fmt::format("sent: expected {} bytes along some axes, given {}",
                                              c.sent.bytes, along.bytes));
  }
}

void print_all(Communicator& group, int devices) {
  for (const Chapter& chapter : chapters())
    for (const Variant& variant : chapter.variants)
      for (const Options& options : testing::tested_options(variant, devices)) {
        auto accepts = [&](const Workload& w) { return variant.accepts(devices, w, options); };
        for (const testing::TestCase& c : testing::cases_of(*variant.workload, accepts)) {
          print_costs(chapter.folder, {group, variant, *c.workload, options, {.batch = c.batch}}, devices);
        }
      }
}

}  // namespace
}  // namespace shard

int main(int argc, char** argv) {
  // Without elements, one device makes the job of all.
  const std::string asked = shard::tensors_have_elements() ? "" : std::getenv("SHARDBOOK_DEVICES");
  if (!asked.empty()) setenv("SHARDBOOK_DEVICES", "1", 1);
  return shard::run_on_devices(argc, argv, [&](shard::Communicator& world) {
    return shard::print_all(world, asked.empty() ? world.num_devices() : std::stoi(asked)), 0;
  });
}
