// expect: a future: .get() or .wait() waits for the call
// A message that nobody waits for.
#include "engine/device/device.hpp"

using namespace shard;

void post(Communicator& group, Tensor&& t) {
  group.post_send(1, std::move(t));
}
