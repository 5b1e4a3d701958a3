/// The program of all chapters: build/emu/shardbook.

#include "engine/program/commands.hpp"

int main(int argc, char** argv) {
  return shard::shardbook_main(argc, argv);
}
