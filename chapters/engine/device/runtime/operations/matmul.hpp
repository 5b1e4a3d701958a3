#pragma once

#include "engine/device/runtime/operations/argument_checks.hpp"

namespace shard::runtime {

/// c = a b + keep c, of no empty extents, in `precision()`. Each backend has one.
void product(Operand a, Operand b, Tensor& c, Extents e, float keep);

}  // namespace shard::runtime
