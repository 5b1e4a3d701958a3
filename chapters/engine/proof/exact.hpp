#pragma once

/// Arithmetic for exact problems: their solutions are computed with it, and it refuses what float32 could not
/// hold exactly.

#include <vector>

#include "engine/device/device.hpp"
#include "engine/device/observer.hpp"
#include "engine/host_tensor.hpp"

namespace shard::exact {

/// Row-major (rows, columns), of integers times powers of two: float64 holds them and their products exactly.
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

/// That a sum is exact in float32 in any order: its addends are multiples of `unit`, a power of two, and
/// their absolute values add up to `magnitude`, 2²⁴ units at most. \throws Error internal when that is not so
void require_exact(double magnitude, double unit);

/// a b, of multiples of powers of two. \throws Error internal when a sum would not be exact in float32
Matrix product(const Matrix& a, const Matrix& b);

/// While it lives, each product of this device must be exact in float32.
/// \throws Error internal, from the product, when it would not be
class ExactProducts : Observer {
 public:
  ExactProducts() : observation_(*this) {}

 private:
  void product(Operand a, Operand b, const Tensor& c, bool accumulates) override;

  Observation observation_;
};

}  // namespace shard::exact
