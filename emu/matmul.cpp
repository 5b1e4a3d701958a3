/// The matrix product, by a CBLAS: it reads transposed operands without copying them.

#include <cblas.h>

#include <algorithm>

#include "backend/checks.hpp"
#include "backend/stream.hpp"
#include "emu/memory.hpp"

namespace shard {

namespace {

/// c = a b + keep c.
void product(Operand a, Operand b, Tensor& c, Extents e, float keep) {
  backend::stream().advance();  // messages go on while we compute
  if (e.m == 0 || e.n == 0) return;
  if (e.k == 0) {  // an empty sum
    if (keep == 0) std::ranges::fill(Backend::span(c), 0.0F);
    return;
  }
  auto row_length = [](Operand o) { return static_cast<int>(o.tensor->extent(1)); };
  auto order = [](Operand o) { return o.is_transposed ? CblasTrans : CblasNoTrans; };
  cblas_sgemm(CblasRowMajor, order(a), order(b), static_cast<int>(e.m), static_cast<int>(e.n),
              static_cast<int>(e.k), 1.0F, Backend::data(*a.tensor), row_length(a), Backend::data(*b.tensor),
              row_length(b), keep, Backend::data(c), static_cast<int>(e.n));
  ledger().computed(2 * e.m * e.n * e.k);
}

}  // namespace

Tensor matmul(Operand a, Operand b) {
  Extents e = extents_of_product(a, b);
  Tensor c = Backend::make({e.m, e.n});
  product(a, b, c, e, 0.0F);
  return c;
}

void matmul_accumulate(Operand a, Operand b, Tensor& c) {
  Extents e = extents_of_product(a, b);
  require_shape("matmul_accumulate", {e.m, e.n}, c);
  product(a, b, c, e, 1.0F);
}

}  // namespace shard
