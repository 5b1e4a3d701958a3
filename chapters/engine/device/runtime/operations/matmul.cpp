/// The matrix product: checks and counts.

#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/kernels.hpp"
#include "engine/device/runtime/operations/tensor_memory.hpp"
#include "engine/device/runtime/stream.hpp"
#include "engine/device/this_device.hpp"

namespace shard {

namespace {

struct PrecisionOfProducts {
  Precision value = Precision::float32;
};

void multiply_into(Tensor& c, Operand a, Operand b, Extents e, float keep) {
  runtime::stream().resume_before_work();
  if (a.columns_in_bf16 + b.columns_in_bf16 > 0 && precision() != Precision::bf16)
    refuse(Code::argument, "matmul", "operands in bf16 only where products round to it", "another precision");
  if (e.m == 0 || e.n == 0 || e.k == 0 || e.count == 0) return;
  const runtime::Noted noted(a, b, c, keep != 0, 2 * e.count * e.m * e.n * e.k);
  kernels::product(a, b, c, e, keep);
}

}  // namespace

void set_precision(Precision precision) {
  device().state<PrecisionOfProducts>().value = precision;
}
Precision precision() {
  return device().state<PrecisionOfProducts>().value;
}

Tensor matmul(Operand a, Operand b, SourceLine where) {
  const CallSite call(where);
  Extents e = extents_of_product(a, b);
  const Shape shape = shape_of_product(a, e);
  Tensor c = e.k == 0 ? Tensor(shape) : TensorMemory::make(shape);  // an empty sum is zero
  multiply_into(c, a, b, e, 0.0F);
  return c;
}

void matmul_accumulate(Operand a, Operand b, Tensor& c, SourceLine where) {
  const CallSite call(where);
  Extents e = extents_of_product(a, b);
  require_shape("matmul_accumulate", shape_of_product(a, e), c);
  multiply_into(c, a, b, e, 1.0F);
}

}  // namespace shard
