/// The program of one chapter: build/emu/03_tensor_parallel.

#include "engine/program/commands.hpp"

int main(int argc, char** argv) {
  return shard::chapter_main(argc, argv);
}
