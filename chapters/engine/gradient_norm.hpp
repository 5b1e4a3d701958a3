#pragma once

#include "engine/sharded_engine.hpp"

namespace shard {

/// ‖g‖₂ of all parameters' gradients together, each element counted once whatever the layout: a replicated
/// gradient once, not once per device; a sharded one summed over the devices; an owned one where it is. The
/// same number on every device. A collective: of a control message, which no ledger counts.
double gradient_norm(Communicator& group, const Gradients& gradients);

/// Scales all gradients by max_norm / (norm + 1e-6) where that is less than 1, as
/// torch.nn.utils.clip_grad_norm_ does. Returns the norm before. A collective.
double clip_gradients(Communicator& group, Gradients& gradients, double max_norm);

}  // namespace shard
