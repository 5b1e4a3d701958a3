// expect: a Partial cannot leave an engine: it is one addend of a sum over the devices, so reduce it first
// What leaves an engine is finished.
#include "engine/placed.hpp"

using namespace shard;

Placed leave(Partial&& out) {
  return Placed(std::move(out));
}
