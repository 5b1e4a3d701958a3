// expect: a Partial cannot leave an engine: it is one addend of a sum over the devices, so reduce it first
// A weight gradient that was not reduced.
#include "engine/sharded_engine.hpp"

using namespace shard;

void hand_out(Gradients& gradients, Partial&& dw) {
  gradients.put("layer_0/weights", std::move(dw));
}
