/// Saves or loads a checkpoint of eight tensors, of which each device holds some rows, and prints the
/// seconds.
///
///   checkpoint_speed save FOLDER MIB | load FOLDER | load-unverified FOLDER | read FOLDER
///
/// `read` reads the file's bytes into new memory, each device its share: the minimum for a load.

#include <fmt/format.h>

#include <chrono>

#include "engine/basics/ranges.hpp"
#include "engine/checkpoints/save.hpp"
#include "engine/checkpoints/saved_checkpoint.hpp"
#include "engine/files/regular_file.hpp"

namespace shard::bench {

namespace {

constexpr int num_tensors = 8;
constexpr Index columns = 1024;

std::string name_of(int tensor) {
  return fmt::format("layer_{}/weights", tensor);
}

/// Zeros, which take as much time as other numbers.
std::vector<Tensor> tensors_of(Index rows) {
  std::vector<Tensor> all;
  for (int i = 0; i < num_tensors; ++i) all.emplace_back(Shape{rows, columns});
  return all;
}

void save(Communicator& group, const std::string& folder, std::vector<Tensor>& tensors, Index all_rows,
          const Range& mine) {
  std::vector<SavedTensors> saved(1);
  saved[0].stem = "model";
  for (int i = 0; i < num_tensors; ++i) {
    saved[0].order.push_back(name_of(i));
    saved[0].held.push_back({name_of(i), Rows(tensors[i]), {all_rows, columns}, {mine, {0, columns}}});
  }
  save_checkpoint(group, folder, {"gathered"}, saved, {});
}

std::vector<Tensor> load(Communicator& group, const std::string& folder, bool verifies) {
  const Manifest manifest = read_manifest(folder);
  if (verifies) verify_digests(group, folder, manifest);
  const auto checkpoint = open_saved(folder, manifest, "model");
  std::vector<Tensor> tensors;
  for (int i = 0; i < num_tensors; ++i) {
    const Range mine = part(checkpoint->shape(name_of(i))[0], group.num_devices(), group.device_id());
    tensors.push_back(checkpoint->slice(name_of(i), 0, mine.begin, mine.end));
  }
  return tensors;
}

/// Reads like cp, in pieces, but into a tensor.
std::vector<Tensor> read_bytes(Communicator& group, const std::string& folder) {
  const std::string path = folder + "/model.safetensors";
  std::uint64_t size = 0;
  const FileDescriptor file = open_regular(path, size);
  const Range mine = part(static_cast<Index>(size / 4), group.num_devices(), group.device_id());
  std::vector<Tensor> all;
  all.push_back(Tensor::uninitialized({mine.size()}));
  std::vector<float> values(piece_elements);
  for (Index at = 0; at < mine.size(); at += piece_elements) {
    values.resize(static_cast<std::size_t>(std::min(piece_elements, mine.size() - at)));
    read_exactly(file, path, static_cast<std::uint64_t>(mine.begin + at) * 4, values.size() * 4,
                 values.data());
    all[0].write(0, at, at + static_cast<Index>(values.size()), values);
  }
  return all;
}

int run(Communicator& world, const std::vector<std::string>& words) {
  using Clock = std::chrono::steady_clock;
  std::vector<Tensor> tensors;
  Clock::time_point start;
  const auto begin = [&] {
    world.barrier();
    start = Clock::now();
  };
  if (words.at(0) == "save") {
    const Index rows = std::stol(words.at(2)) * (1 << 20) / 4 / columns / num_tensors;
    const Range mine = part(rows, world.num_devices(), world.device_id());
    tensors = tensors_of(mine.size());
    begin();
    save(world, words.at(1), tensors, rows, mine);
  } else {
    begin();
    tensors =
        words[0] == "read" ? read_bytes(world, words.at(1)) : load(world, words.at(1), words[0] == "load");
    world.barrier();
  }
  const std::chrono::duration<double> seconds = Clock::now() - start;
  if (world.device_id() == 0) fmt::print("{:.6f}\n", seconds.count());
  return 0;
}

}  // namespace

}  // namespace shard::bench

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  return shard::run_on_devices(argc, argv,
                               [&](shard::Communicator& world) { return shard::bench::run(world, words); });
}
