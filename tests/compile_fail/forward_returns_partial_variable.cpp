// expect: a Partial cannot leave an engine: it is one addend of a sum over the devices, so reduce it first
// The forgotten reduction, by name.
#include "engine/sharded_engine.hpp"

using namespace shard;

struct Forgetful : ShardedEngine {
  Placed forward(Tensor x) override {
    Replicated input(group(), std::move(x));
    Sharded<1> z = matmul(input, w0_);
    Partial out = matmul(relu(z), w1_);
    return out;  // <-
  }

  Sharded<1> w0_;
  Sharded<0> w1_;
};
