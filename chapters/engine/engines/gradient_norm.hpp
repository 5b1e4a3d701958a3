#pragma once

#include "engine/engines/sharded_engine.hpp"

namespace shard {

/// ‖g‖₂ of all parameters' gradients together. Each element counts once in any layout: a replicated gradient
/// once and not once for each device, a sharded one summed over the devices, an owned one on its owner. On a
/// mesh, the first of the devices that hold a part counts it. Every device gets the same number. A collective
/// of control messages, which the ledger does not count.
double gradient_norm(Communicator& group, const Gradients& gradients);

/// Scales all gradients by max_norm / (norm + 1e-6) where that is less than 1, as
/// torch.nn.utils.clip_grad_norm_ does. Returns the norm before scaling. A collective.
double clip_gradients(Communicator& group, Gradients& gradients, double max_norm);

}  // namespace shard
