// expect: an operand of matmul is a future: .get() waits for it
// A factor that nobody waited for.
#include "engine/layouts.hpp"

using namespace shard;

auto product(Future<Replicated>& x, const Sharded<1>& w) {
  return matmul(x, w);
}
