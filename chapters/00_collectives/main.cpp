/// Chapter 00 in one main: all scenes, on 1 to 8 devices. It needs neither a command line nor engines, so
/// ./chapters/run builds it first.
///
///     cmake --build build --target 00_collectives.main && mpirun --oversubscribe -n 4 build/mains/00_collectives

#include "pictures.hpp"

using namespace shard;
using namespace shard::primer;

int main(int argc, char** argv) {
  return run_on_devices(argc, argv, [](Communicator& world) {
    return all_right(play(world)) ? 0 : static_cast<int>(Code::differs);
  });
}
