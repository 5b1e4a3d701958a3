#pragma once

/// The checks of the operations' arguments, for all backends. All throw Error argument.

#include "engine/device/device.hpp"

namespace shard {

/// The bytes of a tensor of this shape, whose extents must not be negative.
Index bytes_of(const Shape& shape);
/// The tensor must have elements `first` to below `first` + the number of values.
void require_inside(const char* call, const Tensor& t, Index first, std::span<const float> values);
/// The number of values must be the number of elements.
void require_values(const char* call, const Tensor& t, std::span<const float> values);

void require_same_shape(const char* call, const Tensor& a, const Tensor& b);
void require_shape(const char* call, const Shape& expected, const Tensor& given);

/// The extents of a product (m, k) times (k, n), or of `count` of them.
struct Extents {
  Index m, k, n, count = 1;
};
Extents extents_of_product(Operand a, Operand b);
/// (m, n), or (count, m, n) where `a` is a stack.
Shape shape_of_product(Operand a, Extents e);

/// The shape of elements [begin, end) along an axis.
Shape shape_of_slice(const char* call, const Tensor& t, int axis, Index begin, Index end);
/// The shape of the concatenated tensors.
Shape shape_of_concatenation(std::span<const Tensor* const> parts, int axis);

void require_matrix(const char* call, const Tensor& t);
/// The number of indices.
Index count_of(std::span<const Index> indices);
/// `given` must be `expected`; the error names what is counted, "rows".
void require_count(const char* call, const char* of_what, Index expected, Index given);
/// Each slot must be from 0 to below `end`, or no_slot.
void require_slots(const char* call, std::span<const Index> slots, Index end);

/// \name Checks of operations on rows, some of which return the result's shape
/// @{
void require_row(const Tensor& t, std::span<const float> row);  ///< add_to_rows
void require_columns(const Tensor& t, Index k);                 ///< top_k
Shape shape_of_taken(const Tensor& t, std::span<const Index> columns, Index k);
Shape shape_of_put(const Tensor& values, std::span<const Index> columns, Index n);
Shape shape_of_gathered(const Tensor& t, std::span<const Index> at);
void require_places(const Tensor& rows, std::span<const Index> at, const Tensor& into);      ///< scatter_rows
void require_factors(const Tensor& rows, const Tensor& factors, std::span<const Index> at);  ///< scale_rows
Shape shape_of_combined(const Tensor& rows, std::span<const Index> slots, const Tensor& weights);
Shape shape_of_combined(const Tensor& rows, std::span<const Index> slots, Index k);
Shape shape_of_dots(const Tensor& t, const Tensor& rows, std::span<const Index> slots, Index k);
/// @}

/// The elements of the rows in their tensor. The gradient must have the rows' shape.
Range elements_to_update(const char* call, Rows rows, const Tensor& gradient);
/// Adam's moments must have the gradient's shape.
void require_moments(const Tensor& g, const Tensor& m, const Tensor& v);
/// Adam's bias corrections of a step.
struct AdamStep {
  float rate;     ///< the learning rate, corrected for the mean's bias
  float v_scale;  ///< the factor of the variance's square root
};
AdamStep adam_step(const AdamSettings& settings, Index step);

}  // namespace shard
