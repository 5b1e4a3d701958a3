/// The matrix product, by a library that reads transposed operands without copies.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "emu/operations/host_memory.hpp"
#include "emu/products/products.hpp"
#include "engine/device/error.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

namespace {

/// Rounds to a number with `bits` fewer bits: to the nearest, ties to even, as in IEEE 754.
float without_low_bits(float x, int bits) {
  if (!std::isfinite(x)) return x;
  const auto pattern = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t is_odd = pattern >> bits & 1;
  const std::uint32_t half = (std::uint32_t{1} << (bits - 1)) - 1 + is_odd;
  return std::bit_cast<float>((pattern + half) >> bits << bits);
}

/// Two numbers in bf16, the upper halves of float32, in the memory of one element.
using Pair = std::array<std::uint16_t, 2>;
constexpr int bits_left_out = 16;

/// An operand in the current precision: the tensor itself, or a rounded copy. The ledger does not book the
/// copy, since a GPU rounds without one.
class Rounded {
 public:
  explicit Rounded(Operand o) : data_(TensorMemory::data(*o.tensor)) {
    if (precision() == Precision::float32) return;
    if (o.columns_in_bf16 > 0)
      read_pairs(*o.tensor, o.columns_in_bf16);
    else
      round(*o.tensor, precision() == Precision::tf32 ? 13 : bits_left_out);  // 11 or 8 bits remain
    data_ = copy_.data();
  }
  const float* data() const { return data_; }

 private:
  void round(const Tensor& t, int bits) {
    copy_.reserve(static_cast<std::size_t>(t.size()));
    for (float x : TensorMemory::span(t)) copy_.push_back(without_low_bits(x, bits));
  }
  void read_pairs(const Tensor& t, Index columns) {
    Index column = 0;
    for (float element : TensorMemory::span(t))
      for (std::uint16_t upper : std::bit_cast<Pair>(element)) {
        if (column < columns) copy_.push_back(std::bit_cast<float>(std::uint32_t{upper} << bits_left_out));
        column = (column + 1) % (2 * t.extent(1));
      }
  }

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
  auto row_length = [](Operand o) { return blas_size(o.shape().back()); };
  const Rounded left(a), right(b);
  for (Index i = 0; i < e.count; ++i)
    emu::multiply({a.is_transposed, b.is_transposed, blas_size(e.m), blas_size(e.n), blas_size(e.k),
                   left.data() + i * e.m * e.k, row_length(a), right.data() + i * e.k * e.n, row_length(b),
                   keep, TensorMemory::data(c) + i * e.m * e.n});
}

void to_bf16(const Tensor& matrix, Tensor& pairs) {
  const Index n = matrix.extent(1);
  const float* from = TensorMemory::data(matrix);
  float* to = TensorMemory::data(pairs);
  for (Index row = 0; row < matrix.extent(0); ++row, from += n)
    for (Index column = 0; column < n; column += 2) {
      auto upper = [&](Index at) {
        const float x = at < n ? without_low_bits(from[at], bits_left_out) : 0;
        return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> bits_left_out);
      };
      *to++ = std::bit_cast<float>(Pair{upper(column), upper(column + 1)});
    }
}

void sum_of_bf16(const Tensor& pairs, Tensor& sums) {
  const Index n = sums.extent(1), distance = pairs.extent(1), rows = sums.extent(0);
  const float* from = TensorMemory::data(pairs);
  float* to = TensorMemory::data(sums);
  for (Index row = 0; row < pairs.extent(0); ++row)
    for (Index column = 0; column < n; ++column) {
      const Pair pair = std::bit_cast<Pair>(from[row * distance + column / 2]);
      const std::uint32_t bits = pair[static_cast<std::size_t>(column % 2)];
      const auto addend = std::bit_cast<float>(bits << bits_left_out);
      float& sum = to[row % rows * n + column];
      sum = row < rows ? addend : sum + addend;
    }
}

}  // namespace shard::kernels
