#pragma once

namespace shard::runtime {

/// Ends the job with one line, code 84, when a second thread of this device calls the runtime, if only for an
/// operation on tensors, which the ledger counts. A device is one thread: the first that calls.
void require_own_thread();

}  // namespace shard::runtime
