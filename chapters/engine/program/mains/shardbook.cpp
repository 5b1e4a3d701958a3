/// The program of all chapters: build/emu/shardbook.

#include "engine/program/mains/main_functions.hpp"

int main(int argc, char** argv) {
  return shard::shardbook_main(argc, argv);
}
