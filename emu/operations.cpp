/// Elementwise operations, as xtensor expressions on flat memory.

#include <algorithm>
#include <cmath>

#include "emu/arrays.hpp"
#include "emu/slices.hpp"

namespace shard {

using emu::flat;

namespace {

void require_same_shape(const char* call, const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape())
    refuse(Code::argument, call, "equal shapes", to_string(a.shape()) + " and " + to_string(b.shape()));
}

}  // namespace

Tensor relu(const Tensor& z) {
  Tensor h = Backend::make(z.shape());
  xt::noalias(flat(h)) = xt::maximum(flat(z), 0.0F);
  return h;
}

Tensor relu(Tensor&& z) {
  xt::noalias(flat(z)) = xt::maximum(flat(z), 0.0F);
  return std::move(z);
}

Tensor relu_backward(Tensor&& dh, const Tensor& z) {
  require_same_shape("relu_backward", dh, z);
  // Not xt::where, which branches at every element: signs are as good as random, and every other guess is wrong.
  float* gradient = Backend::data(dh);
  const float* argument = Backend::data(z);
  const Index size = dh.size();
  for (Index i = 0; i < size; ++i) gradient[i] = argument[i] > 0.0F ? gradient[i] : 0.0F;
  return std::move(dh);
}

Tensor add(Tensor&& a, const Tensor& b) {
  require_same_shape("add", a, b);
  xt::noalias(flat(a)) += flat(b);
  return std::move(a);
}

Tensor subtract(Tensor&& a, const Tensor& b) {
  require_same_shape("subtract", a, b);
  xt::noalias(flat(a)) -= flat(b);
  return std::move(a);
}

Tensor multiply(Tensor&& a, const Tensor& b) {
  require_same_shape("multiply", a, b);
  xt::noalias(flat(a)) *= flat(b);
  return std::move(a);
}

Tensor scale(Tensor&& a, float factor) {
  xt::noalias(flat(a)) *= factor;
  return std::move(a);
}

Tensor scaled_difference(const Tensor& output, Tensor&& target, float factor) {
  require_same_shape("scaled_difference", output, target);
  xt::noalias(flat(target)) = factor * (flat(output) - flat(target));
  return std::move(target);
}

Tensor slice(const Tensor& t, int axis, Index begin, Index end) {
  emu::require_axis("slice", t.shape(), axis);
  if (begin < 0 || begin > end || end > t.extent(axis))
    refuse(Code::argument, "slice", "a range of axis " + std::to_string(axis) + " of " + to_string(t.shape()),
           "[" + std::to_string(begin) + ", " + std::to_string(end) + ")");
  Tensor part = Backend::make(emu::with_extent(t.shape(), axis, end - begin));
  emu::copy_slice(t, axis, {begin, end}, Backend::data(part));
  return part;
}

void assign(Rows rows, const Tensor& values) {
  if (values.shape() != rows.shape())
    refuse(Code::argument, "assign", to_string(rows.shape()), to_string(values.shape()));
  emu::paste_slice(Backend::data(values), *rows.tensor, 0, {rows.begin, rows.end});
}

Tensor concatenate(std::span<const Tensor* const> parts, int axis) {
  if (parts.empty()) refuse(Code::argument, "concatenate", "at least one tensor", "none");
  const Shape& first = parts[0]->shape();
  emu::require_axis("concatenate", first, axis);
  Index extent = 0;
  for (const Tensor* t : parts) {
    if (t->rank() != parts[0]->rank() ||
        emu::with_extent(t->shape(), axis, 0) != emu::with_extent(first, axis, 0))
      refuse(Code::argument, "concatenate", "shapes equal but for axis " + std::to_string(axis),
             to_string(first) + " and " + to_string(t->shape()));
    extent += t->extent(axis);
  }
  Tensor whole = Backend::make(emu::with_extent(first, axis, extent));
  Index begin = 0;
  for (const Tensor* t : parts) {
    emu::paste_slice(Backend::data(*t), whole, axis, {begin, begin + t->extent(axis)});
    begin += t->extent(axis);
  }
  return whole;
}

double sum_of_squares(const Tensor& t) {
  auto squares = xt::square(xt::cast<double>(flat(t)));
  return xt::sum(squares, xt::evaluation_strategy::immediate)();
}

bool all_finite(const Tensor& t) {
  return std::ranges::all_of(Backend::span(t), [](float value) { return std::isfinite(value); });
}

}  // namespace shard
