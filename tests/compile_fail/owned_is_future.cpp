// expect: this is a future of the tensor, not the tensor: .get() waits for it
// A call that nobody waited for.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Future<Owned>& x) {
  Owned y = std::move(x);
}
