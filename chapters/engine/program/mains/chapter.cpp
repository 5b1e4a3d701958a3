/// The program of one chapter: build/emu/03_tensor_parallel.

#include "engine/program/mains/main_functions.hpp"
#include "engine/program/table/run_chapter.hpp"
#include "engine/record/recording.hpp"

int main(int argc, char** argv) {
  if (const std::optional<int> code = shard::join_record(argc, argv)) return *code;
  return shard::run_on_devices(argc, argv, [&](shard::Communicator& world) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    return shard::written([&] {
      return shard::prints_version(world, words) ? 0 : run_chapter(world, shard::only_chapter(), words);
    });
  });
}
