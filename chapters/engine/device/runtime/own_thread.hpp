#pragma once

namespace shard::runtime {

/// Every call of a communicator and every operation on tensors calls this. The first thread that does so is the
/// device's thread. A call from any other thread ends the job with one line, code 84.
void require_own_thread();

}  // namespace shard::runtime
