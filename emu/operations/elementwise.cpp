/// Elementwise operations, as xtensor expressions on flat memory.

#include <algorithm>
#include <cmath>

#include "emu/operations/arrays.hpp"
#include "emu/operations/host_memory.hpp"
#include "emu/operations/vectors.hpp"
#include "emu/slice_copies.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

using emu::flat;

SHARDBOOK_VECTORS void relu(const Tensor& z, Tensor& h) {
  // Not xt::maximum, which takes the larger number where the other is NaN.
  const float* argument = TensorMemory::data(z);
  float* result = TensorMemory::data(h);
  const Index size = z.size();
  for (Index i = 0; i < size; ++i) result[i] = argument[i] <= 0.0F ? 0.0F : argument[i];
}

SHARDBOOK_VECTORS void relu_backward(Tensor& dh, const Tensor& z) {
  // Not xt::where, which branches at every element: signs are random, so half of the branches are mispredicted.
  float* gradient = TensorMemory::data(dh);
  const float* argument = TensorMemory::data(z);
  const Index size = dh.size();
  for (Index i = 0; i < size; ++i) gradient[i] = argument[i] <= 0.0F ? 0.0F : gradient[i];
}

SHARDBOOK_VECTORS void add(Tensor& a, const Tensor& b) {
  xt::noalias(flat(a)) += flat(b);
}

SHARDBOOK_VECTORS void subtract(Tensor& a, const Tensor& b) {
  xt::noalias(flat(a)) -= flat(b);
}

SHARDBOOK_VECTORS void multiply(Tensor& a, const Tensor& b) {
  xt::noalias(flat(a)) *= flat(b);
}

SHARDBOOK_VECTORS void scale(Tensor& t, float factor) {
  if (factor != 1) xt::noalias(flat(t)) *= factor;  // as scores of T5
}

SHARDBOOK_VECTORS void scaled_difference(Tensor& target, const Tensor& output, float factor) {
  xt::noalias(flat(target)) = factor * (flat(output) - flat(target));
}

void copy_slice(const Tensor& t, int axis, Range range, Tensor& part) {
  emu::copy_slice(t, axis, range, TensorMemory::data(part));
}

void paste_slice(Tensor& t, int axis, Range range, const Tensor& part) {
  emu::paste_slice(TensorMemory::data(part), t, axis, range);
}

Later<double> sum_of_squares(const Tensor& t) {
  auto squares = xt::square(xt::cast<double>(flat(t)));
  return xt::sum(squares, xt::evaluation_strategy::immediate)();
}

bool all_finite(const Tensor& t) {
  return std::ranges::all_of(TensorMemory::span(t), [](float value) { return std::isfinite(value); });
}

}  // namespace shard::kernels
