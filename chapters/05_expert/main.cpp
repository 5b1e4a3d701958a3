#include "chapter.hpp"

int main(int argc, char** argv) {
  return shard::chapter_main(argc, argv, shard::this_chapter());
}
