// Prints what a step takes on each device: of each variant, with each of its options, on each of its networks. The
// program is built for each backend, and for tensors without memory (emu/meta/), which must print the same.

#include <fmt/format.h>

#include "engine/program/commands/costs_of_step.hpp"
#include "tests/equivalence/networks.hpp"

namespace shard {
namespace {

/// \throws Error internal if a device of a mesh has sent more, or less, than along all axes
void print_costs(const std::string& chapter, const Run& run) {
  const std::vector<CostsOfStep> all = costs_of_step(run);
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

void print_all(Communicator& group) {
  for (const Chapter& chapter : chapters())
    for (const Variant& variant : chapter.variants)
      for (const Options& options : variant.test_options(group.num_devices())) {
        auto accepts = [&](const Workload& w) { return variant.accepts(group.num_devices(), w, options); };
        for (const testing::TestCase& c : testing::cases_of(*variant.workload, accepts)) {
          print_costs(chapter.folder, {group, variant, *c.workload, options, {.batch = c.batch}});
        }
      }
}

}  // namespace
}  // namespace shard

int main(int argc, char** argv) {
  return shard::run_on_devices(argc, argv,
                               [](shard::Communicator& world) { return shard::print_all(world), 0; });
}
