// expect: a tensor has no layout: return a layout, such as Replicated(group(), std::move(x))
// A plain tensor says nothing of how it lies.
#include "engine/sharded_engine.hpp"

using namespace shard;

struct Forgetful : ShardedEngine {
  Placed forward(Tensor x) override {
    Replicated input(group(), std::move(x));
    Sharded<1> z = matmul(input, w0_);
    return std::move(z).local();  // <-
  }

  Sharded<1> w0_;
  Sharded<0> w1_;
};
