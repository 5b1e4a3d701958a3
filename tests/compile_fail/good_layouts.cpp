// expect: success
// The mistakes beside it are made of this.
#include "engine/layouts.hpp"

using namespace shard;

Partial block(const Replicated& x, const Sharded<1>& w0, const Sharded<0>& w1) {
  Sharded<1> z = matmul(x, w0);
  return matmul(relu(std::move(z)), w1);
}
