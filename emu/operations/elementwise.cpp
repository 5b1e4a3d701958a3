/// Elementwise operations, as xtensor expressions on flat memory.

#include <algorithm>
#include <cmath>

#include "emu/operations/arrays.hpp"
#include "emu/operations/host_memory.hpp"
#include "emu/slice_copies.hpp"
#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/argument_checks.hpp"

namespace shard {

using runtime::note_elementwise;

using emu::flat;

Tensor relu(const Tensor& z, SourceLine where) {
  const CallSite call(where);
  note_elementwise("relu", z.size());
  Tensor h = TensorMemory::make(z.shape());
  xt::noalias(flat(h)) = xt::maximum(flat(z), 0.0F);
  return h;
}

Tensor relu(Tensor&& z, SourceLine where) {
  const CallSite call(where);
  note_elementwise("relu", z.size());
  xt::noalias(flat(z)) = xt::maximum(flat(z), 0.0F);
  return std::move(z);
}

Tensor relu_backward(Tensor&& dh, const Tensor& z, SourceLine where) {
  const CallSite call(where);
  note_elementwise("relu_backward", z.size());
  require_same_shape("relu_backward", dh, z);
  // Not xt::where, which branches at every element: signs are random, so half of the branches are mispredicted.
  float* gradient = TensorMemory::data(dh);
  const float* argument = TensorMemory::data(z);
  const Index size = dh.size();
  for (Index i = 0; i < size; ++i) gradient[i] = argument[i] > 0.0F ? gradient[i] : 0.0F;
  return std::move(dh);
}

Tensor add(Tensor&& a, const Tensor& b, SourceLine where) {
  const CallSite call(where);
  note_elementwise("add", b.size());
  require_same_shape("add", a, b);
  xt::noalias(flat(a)) += flat(b);
  return std::move(a);
}

Tensor subtract(Tensor&& a, const Tensor& b, SourceLine where) {
  const CallSite call(where);
  note_elementwise("subtract", b.size());
  require_same_shape("subtract", a, b);
  xt::noalias(flat(a)) -= flat(b);
  return std::move(a);
}

Tensor multiply(Tensor&& a, const Tensor& b, SourceLine where) {
  const CallSite call(where);
  note_elementwise("multiply", b.size());
  require_same_shape("multiply", a, b);
  xt::noalias(flat(a)) *= flat(b);
  return std::move(a);
}

Tensor scale(Tensor&& a, float factor, SourceLine where) {
  const CallSite call(where);
  note_elementwise("scale", a.size());
  xt::noalias(flat(a)) *= factor;
  return std::move(a);
}

Tensor scaled_difference(const Tensor& output, Tensor&& target, float factor, SourceLine where) {
  const CallSite call(where);
  note_elementwise("scaled_difference", output.size());
  require_same_shape("scaled_difference", output, target);
  xt::noalias(flat(target)) = factor * (flat(output) - flat(target));
  return std::move(target);
}

Tensor slice(const Tensor& t, int axis, Index begin, Index end, SourceLine where) {
  const CallSite call(where);
  Tensor part = TensorMemory::make(shape_of_slice("slice", t, axis, begin, end));
  note_elementwise("slice", part.size());
  emu::copy_slice(t, axis, {begin, end}, TensorMemory::data(part));
  return part;
}

void assign(Rows rows, const Tensor& values, SourceLine where) {
  const CallSite call(where);
  note_elementwise("assign", values.size());
  require_shape("assign", rows.shape(), values);
  emu::paste_slice(TensorMemory::data(values), *rows.tensor, 0, {rows.begin, rows.end});
}

Tensor concatenate(std::span<const Tensor* const> parts, int axis, SourceLine where) {
  const CallSite call(where);
  Tensor whole = TensorMemory::make(shape_of_concatenation(parts, axis));
  note_elementwise("concatenate", whole.size());
  Index begin = 0;
  for (const Tensor* t : parts) {
    emu::paste_slice(TensorMemory::data(*t), whole, axis, {begin, begin + t->extent(axis)});
    begin += t->extent(axis);
  }
  return whole;
}

Later<double> sum_of_squares(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  note_elementwise("sum_of_squares", t.size());
  auto squares = xt::square(xt::cast<double>(flat(t)));
  return xt::sum(squares, xt::evaluation_strategy::immediate)();
}

bool all_finite(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  note_elementwise("all_finite", t.size());
  return std::ranges::all_of(TensorMemory::span(t), [](float value) { return std::isfinite(value); });
}

}  // namespace shard
