#include "engine/proof/exact.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace shard::exact {

Matrix::Matrix(Index r, Index c) : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}

Matrix::Matrix(const HostTensor& t) : Matrix(t.shape[0], t.shape[1]) {
  std::ranges::copy(t.values, values.begin());
}

Matrix Matrix::transposed() const {
  Matrix t(columns, rows);
  for (Index r = 0; r < rows; ++r)
    for (Index c = 0; c < columns; ++c) t.at(c, r) = at(r, c);
  return t;
}

HostTensor Matrix::as_floats() const {
  return {{rows, columns}, {values.begin(), values.end()}};
}

double unit_of(double value) {
  if (value == 0) return HUGE_VAL;
  int exponent = 0;
  auto mantissa = static_cast<std::int64_t>(std::ldexp(std::frexp(value, &exponent), 53));
  return std::ldexp(1.0, exponent - 53 + std::countr_zero(static_cast<std::uint64_t>(mantissa)));
}

double unit_of(const Matrix& m) {
  double unit = HUGE_VAL;
  for (double value : m.values) unit = std::min(unit, unit_of(value));
  return unit;
}

void require_exact(double magnitude, double unit) {
  constexpr double largest_exact = 0x1p24;  // every integer up to here is a float32
  if (magnitude <= largest_exact * unit) return;
  throw Error(Code::internal,
              fmt::format("exact mode: expected sums of at most 2^24{}, given {}: use a smaller problem",
                          unit == 1 ? "" : fmt::format(" units of {}", unit), magnitude / unit));
}

Matrix product(const Matrix& a, const Matrix& b) {
  const double unit = unit_of(a) * unit_of(b);
  Matrix c(a.rows, b.columns);
  for (Index i = 0; i < a.rows; ++i)
    for (Index j = 0; j < b.columns; ++j) {
      double magnitude = 0;
      for (Index k = 0; k < a.columns; ++k) {
        const double term = a.at(i, k) * b.at(k, j);
        c.at(i, j) += term;
        magnitude += std::abs(term);
      }
      require_exact(magnitude, unit);
    }
  return c;
}

namespace {

Matrix matrix_of(Operand a) {
  const Matrix m(HostTensor{a.tensor->shape(), a.tensor->to_host()});
  return a.is_transposed ? m.transposed() : m;
}

}  // namespace

void ExactProducts::product(Operand a, Operand b, const Tensor&, bool) {
  exact::product(matrix_of(a), matrix_of(b));
}

}  // namespace shard::exact
