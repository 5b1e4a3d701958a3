// expect: S1·S1 has no product: transposed(b) would make it S1·S0 = P, and all_gather(a) R·S1 = S1
// The same without a declared layout.
#include "engine/sharded_engine.hpp"

using namespace shard;

Placed forward(ShardedEngine& engine, const Sharded<1>& x, const Sharded<1>& w, const Sharded<0>& v) {
  auto z = matmul(x, w);  // <-
  auto out = matmul(relu(std::move(z)), v);
  return engine.all_reduce(std::move(out));
}
