#include "engine/proof/exact.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/basics/larger.hpp"
#include "engine/basics/printable.hpp"
#include "engine/basics/printable.hpp"

namespace shard::exact {

namespace {

constexpr double largest_exact = 0x1p24;  // every integer up to here is a float32

}  // namespace

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
  const auto bits = std::bit_cast<std::uint64_t>(std::abs(value));
  const bool is_power_of_two = bits << 12 == 0;  // the mantissa
  return std::abs(value) - (is_power_of_two ? 0 : std::bit_cast<double>(bits & (bits - 1)));
}

double unit_of(const Matrix& m) {
  double unit = HUGE_VAL;
  for (double value : m.values) unit = std::min(unit, unit_of(value));
  return unit;
}

void require_hidden_dim(Index given, Index most) {
  if (given <= most) return;
  throw Error(Code::usage,
              "exact mode needs --hidden-dim of at most {}, given {}: larger sums are not exact in float32",
              with_commas(most), with_commas(given));
}

void require_exact(double magnitude, double unit) {
  if (magnitude <= largest_exact * unit) return;
  throw Error(Code::usage, "exact mode: expected sums of at most 2^24{}, given {}: use smaller sizes",
              unit == 1 ? "" : fmt::format(" units of {}", unit), magnitude / unit);
}

Matrix product(const Matrix& a, const Matrix& b) {
  const double unit = unit_of(a) * unit_of(b);
  Matrix c(a.rows, b.columns);
  for (Index i = 0; i < a.rows; ++i) {
    std::vector<double> magnitudes(static_cast<std::size_t>(b.columns));
    for (Index k = 0; k < a.columns; ++k)
      for (Index j = 0; j < b.columns; ++j) {
        const double term = a.at(i, k) * b.at(k, j);
        c.at(i, j) += term;
        magnitudes[static_cast<std::size_t>(j)] += std::abs(term);
      }
    for (double magnitude : magnitudes) require_exact(magnitude, unit);
  }
  return c;
}

namespace {

double largest(const Matrix& m) {
  double most = 0;
  for (double value : m.values) most = larger(most, std::abs(value));
  return most;
}

/// The matrices of a stack, or the only one.
std::vector<Matrix> matrices_of(Operand a, Index count) {
  const Shape& shape = a.tensor->shape();
  const std::vector<float> all = a.tensor->to_host();
  std::vector<Matrix> matrices;
  for (auto first = all.begin(); first != all.end(); first += a.tensor->size() / count) {
    const Matrix m(HostTensor{{shape.end() - 2, shape.end()}, {first, first + a.tensor->size() / count}});
    matrices.push_back(a.is_transposed ? m.transposed() : m);
  }
  return matrices;
}

}  // namespace

/// Most products are exact by a bound: no sum is more than the number of its addends times the largest of them.
void ExactProducts::product(Operand a, Operand b, const Tensor&, bool) {
  const Index count = a.tensor->rank() == 3 ? a.tensor->extent(0) : 1;
  const std::vector<Matrix> of_a = matrices_of(a, count), of_b = matrices_of(b, count);
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    const Matrix &left = of_a[i], &right = of_b[i];
    const double bound = static_cast<double>(left.columns) * largest(left) * largest(right);
    if (!(bound <= largest_exact * unit_of(left) * unit_of(right))) exact::product(left, right);
  }
}

}  // namespace shard::exact
