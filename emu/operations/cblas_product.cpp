/// The matrix product, by a CBLAS, which reads transposed operands without copies.

#include <cblas.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "emu/operations/host_memory.hpp"
#include "engine/device/error.hpp"
#include "engine/device/runtime/operations/matmul.hpp"

namespace shard::runtime {

namespace {

/// Rounds to a number with `bits` fewer bits: to the nearest, ties to even, as in IEEE 754.
float without_low_bits(float x, int bits) {
  if (!std::isfinite(x)) return x;
  const auto pattern = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t is_odd = pattern >> bits & 1;
  const std::uint32_t half = (std::uint32_t{1} << (bits - 1)) - 1 + is_odd;
  return std::bit_cast<float>((pattern + half) >> bits << bits);
}

/// An operand in the current precision: the tensor itself, or a rounded copy. The ledger does not book the
/// copy, since a GPU rounds without one.
class Rounded {
 public:
  explicit Rounded(const Tensor& t) : data_(TensorMemory::data(t)) {
    if (precision() == Precision::float32) return;
    const int bits = precision() == Precision::tf32 ? 13 : 16;  // 11 and 8 of float32's 24 bits remain
    for (float x : TensorMemory::span(t)) copy_.push_back(without_low_bits(x, bits));
    data_ = copy_.data();
  }
  const float* data() const { return data_; }

 private:
  const float* data_;
  std::vector<float> copy_;
};

/// A number of rows or columns as an int. \throws Error argument when it is too large.
int blas_size(Index extent) {
  if (extent > std::numeric_limits<int>::max())
    refuse(Code::argument, "matmul", "fewer than 2^31 rows and columns", std::to_string(extent));
  return static_cast<int>(extent);
}

}  // namespace

void product(Operand a, Operand b, Tensor& c, Extents e, float keep) {
  auto row_length = [](Operand o) { return blas_size(o.tensor->shape().back()); };
  auto order = [](Operand o) { return o.is_transposed ? CblasTrans : CblasNoTrans; };
  const Rounded left(*a.tensor), right(*b.tensor);
  for (Index i = 0; i < e.count; ++i)
    cblas_sgemm(CblasRowMajor, order(a), order(b), blas_size(e.m), blas_size(e.n), blas_size(e.k), 1.0F,
                left.data() + i * e.m * e.k, row_length(a), right.data() + i * e.k * e.n, row_length(b), keep,
                TensorMemory::data(c) + i * e.m * e.n, blas_size(e.n));
}

}  // namespace shard::runtime
