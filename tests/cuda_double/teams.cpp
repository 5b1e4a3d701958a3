// The threads of a team are fibres: each runs until it comes to an exchange, and goes on when all have come.

#include <array>
#include <memory>
#include <vector>

#include "double.hpp"
#include "emu/local/fibre.hpp"

ThreadIndex threadIdx;

namespace cuda_double {

namespace {

/// The fibres are kept, since each kernel runs many teams. Never destroyed.
struct Lane {
  shard::local::Fibre* fibre;
  int exchanges = 0;
  bool is_done = false;
};
std::vector<Lane>& team() {
  static auto* all = new std::vector<Lane>;
  return *all;
}
const std::function<void(int)>* running = nullptr;
std::array<std::array<std::uint64_t, 32>, 2> given;  // at exchanges with an even and with an odd number

void add_thread() {
  const auto lane = team().size();
  team().push_back({new shard::local::Fibre([lane] {
    for (;;) {
      (*running)(static_cast<int>(lane));
      team()[lane].is_done = true;
      team()[lane].fibre->suspend();
    }
  })});
}

}  // namespace

void run_team(int size, const std::function<void(int lane)>& body) {
  while (team().size() < static_cast<std::size_t>(size)) add_thread();
  running = &body;
  for (Lane& lane : team()) lane.exchanges = 0, lane.is_done = false;
  while (!team()[0].is_done) {
    for (unsigned lane = 0; lane < team().size(); ++lane) {
      threadIdx.x = lane;
      team()[lane].fibre->resume();
      if (team()[lane].is_done != team()[0].is_done)
        violation("a thread of a team does not come to an exchange of the others");
    }
  }
  threadIdx.x = 0;
}

std::uint64_t exchanged(std::uint64_t mine, int other) {
  Lane& lane = team()[threadIdx.x];
  auto& all = given[static_cast<std::size_t>(lane.exchanges++ % 2)];
  all[threadIdx.x] = mine;
  lane.fibre->suspend();
  return all[static_cast<std::size_t>(other)];
}

}  // namespace cuda_double
