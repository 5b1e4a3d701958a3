// expect: success
// The mistakes beside it are made of this.
#include "engine/sharded_engine.hpp"

using namespace shard;

struct Careful : ShardedEngine {
  Placed forward(Tensor x) override {
    Replicated input(group(), std::move(x));
    Partial out = matmul(matmul(input, w0_), w1_);
    return all_reduce(std::move(out));
  }

  Sharded<1> w0_;
  Sharded<0> w1_;
};
