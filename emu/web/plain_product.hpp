#pragma once

#include "emu/products/library.hpp"

namespace shard::emu {

/// The product without a library. Each element is the sum over k in the order of k, so each processor computes the
/// same bits.
void multiply_plainly(const MatrixProduct& product);

}  // namespace shard::emu
