// expect: this is a future of the tensor, not the tensor: .get() waits for it
// A call that nobody waited for.
#include "engine/layouts.hpp"

using namespace shard;

void keep(Future<Replicated>& x) {
  Replicated y = std::move(x);
}
