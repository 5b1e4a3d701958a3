#pragma once

/// What operations require of their arguments, in both backends. All throw Error argument.

#include "engine/device.hpp"

namespace shard {

void require_same_shape(const char* call, const Tensor& a, const Tensor& b);
void require_shape(const char* call, const Shape& expected, const Tensor& given);

/// Of a product (m, k) times (k, n).
struct Extents {
  Index m, k, n;
};
Extents extents_of_product(Operand a, Operand b);

/// The shape of elements [begin, end) along an axis.
Shape shape_of_slice(const Tensor& t, int axis, Index begin, Index end);
/// The shape of tensors one behind the other.
Shape shape_of_concatenation(std::span<const Tensor* const> parts, int axis);

void require_matrix(const char* call, const Tensor& t);
/// `expected` of what is counted, "rows".
void require_count(const char* call, const char* of_what, Index expected, Index given);
/// 0 to below `end`.
void require_index(const char* call, Index index, Index end);

/// Where rows to be updated lie in their tensor, in elements; the gradient has their shape.
Range elements_to_update(const char* call, Rows rows, const Tensor& gradient);
/// Adam's state has the gradient's shape.
void require_moments(const Tensor& g, const Tensor& m, const Tensor& v);
/// Adam's bias corrections, out of the loop over elements.
struct AdamStep {
  float rate;     ///< corrected for the mean's bias
  float v_scale;  ///< of the square root of the variance
};
AdamStep adam_step(const AdamSettings& settings, Index step);

}  // namespace shard
