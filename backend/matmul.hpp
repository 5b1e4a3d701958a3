#pragma once

#include "backend/checks.hpp"

namespace shard::backend {

/// c = a b + keep c, of no empty extents, in `precision()`. Each backend has one.
void product(Operand a, Operand b, Tensor& c, Extents e, float keep);

}  // namespace shard::backend
