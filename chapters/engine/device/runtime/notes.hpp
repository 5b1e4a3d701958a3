#pragma once

/// Backends report operations and allocations here, for the ledger and the device's observers.

#include "engine/device/books/observer.hpp"

namespace shard::runtime {

/// Call it before the product is computed.
void note_product(Operand a, Operand b, const Tensor& c, bool accumulates, Index flops);
void note_elementwise(std::string_view function, Index elements);
void note_allocation(Purpose purpose, Index bytes);
void note_release(Purpose purpose, Index bytes);
void note_move(Purpose from, Purpose to, Index bytes);

}  // namespace shard::runtime
