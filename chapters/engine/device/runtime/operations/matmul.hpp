#pragma once

#include "engine/device/runtime/operations/argument_checks.hpp"

namespace shard::runtime {

/// c = a b + keep c, in `precision()`. No extent is 0. Operands are in bf16 only if products are. Each backend
/// implements it.
void product(Operand a, Operand b, Tensor& c, Extents e, float keep);

}  // namespace shard::runtime
