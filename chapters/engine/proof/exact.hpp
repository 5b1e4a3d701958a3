#pragma once

/// Exact arithmetic, which computes the solutions of exact problems. It refuses values that float32 cannot
/// hold exactly.

#include <vector>

#include "engine/basics/ranges.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/device/device.hpp"

namespace shard::exact {

/// A row-major matrix of integers times powers of two. float64 holds them and their products exactly.
struct Matrix {
  Index rows = 0;
  Index columns = 0;
  std::vector<double> values;

  /// Zeros.
  Matrix(Index rows, Index columns);
  explicit Matrix(const HostTensor& t);
  double& at(Index r, Index c) { return values[static_cast<std::size_t>(r * columns + c)]; }
  double at(Index r, Index c) const { return values[static_cast<std::size_t>(r * columns + c)]; }
  Matrix transposed() const;
  HostTensor as_floats() const;
};

/// The largest power of two that divides a number, or all elements; infinite for 0, a multiple of any.
double unit_of(double value);
double unit_of(const Matrix& m);

/// Refuses a hidden dimension for which a sum over it may need more than float32's 24 bits. \throws Error usage
void require_hidden_dim(Index given, Index most);

/// Checks that a sum is exact in float32 in any order. Its addends are multiples of `unit`, a power of two,
/// and the sum of their absolute values, `magnitude`, is at most 2²⁴ units. \throws Error usage otherwise, since the sizes of a network decide it
void require_exact(double magnitude, double unit);

/// The product a b of multiples of powers of two. \throws Error usage when a sum is not exact in float32
Matrix product(const Matrix& a, const Matrix& b);

/// While it lives, each product of this device must be exact in float32.
/// \throws Error usage, from the product, when it would not be
class ExactProducts : Observer {
 public:
  ExactProducts() : observation_(*this) {}

 private:
  void product(Operand a, Operand b, const Tensor& c, bool accumulates) override;

  Observation observation_;
};

}  // namespace shard::exact
