///     mpirun --oversubscribe -n 3 build/course/ring FOLDER OUT
///
/// Lets chapter 00's ring add up vectors. FOLDER has batch.safetensors with a vector for each device,
/// "addend_0" and so on. Results are the chunks of the sum, "arrived", which chunk came in each step, and "steps", the
/// numbers of the steps: a row for each device.

#include "00_collectives/ring.hpp"

#include "engine/files/safetensors/safetensors.hpp"
#include "parts.hpp"

namespace shard::course {

void run(Communicator& world, const std::string& folder, const std::string& out) {
  const int n = world.num_devices(), me = world.device_id();
  const std::unique_ptr<Checkpoint> file = open_checkpoint(folder + "/batch.safetensors");
  const std::string name = fmt::format("addend_{}", me);
  const Index size = file->shape(name).at(0);
  std::vector<Tensor> chunks;
  for (int k = 0; k < n; ++k) {
    const Range range = part(size, n, k);
    chunks.push_back(file->slice(name, 0, range.begin, range.end));
  }
  std::vector<float> arrived, steps;
  ledger().reset();
  primer::go_around(world, chunks, [&](int step, std::size_t chunk) {
    arrived.push_back(static_cast<float>(chunk));
    steps.push_back(static_cast<float>(step));
  });
  Parts parts;
  parts.add_figures(ledger().traffic());
  for (int k = 0; k < n; ++k) {
    const Tensor& chunk = chunks.at(static_cast<std::size_t>(k));
    parts.add(fmt::format("chunk {}", k), {{0}, {chunk.shape(), chunk.to_host()}});
  }
  for (const auto& [told, numbers] : {std::pair("arrived", arrived), std::pair("steps", steps)})
    parts.add(told, {{me, 0}, {{1, static_cast<Index>(numbers.size())}, numbers}});
  parts.write(out, me);
}

}  // namespace shard::course
