// expect: S1·S1 has no product: transposed(b) would make it S1·S0 = P, and all_gather(a) R·S1 = S1
// What the refused product goes into is not refused again.
#include "engine/sharded_engine.hpp"

using namespace shard;

Placed forward(ShardedEngine& engine, const Sharded<1>& x, const Sharded<1>& w, const Sharded<0>& v) {
  Sharded<1> z = matmul(x, w);  // <-
  return engine.all_reduce(matmul(relu(std::move(z)), v));
}
