#pragma once

/// Layouts: types that say how a tensor is divided over the devices. A product or an elementwise function has
/// a result type for each layout of its operands. Only collectives (sharded_engine.hpp) turn one layout into
/// another. A mistake that would give a wrong sum at run time therefore does not compile.
///
///     Replicated     every device holds the whole tensor, the same on all
///     Sharded<Axis>  every device holds a slice along Axis
///     Partial        every device holds an addend: the sum over the devices is the tensor
///     Owned          one device holds the whole tensor, the others nothing
/// An engine returns its output as a Placed (placed.hpp). Any layout but a Partial can become one.
///
/// Layouts can be moved and not copied. Beside the tensor, they hold only shapes and an offset. (Each class
/// declares this itself, so that the compiler answers a copy with one error and not a chain of them.)
/// A layout knows the group of devices that holds it, and the operands of a function belong to one group. A
/// tensor that enters from outside is given its group: `Replicated x(group, std::move(input))`.

#include "engine/layouts/products.hpp"

namespace shard {

/// \name Elementwise functions: they keep the layout
/// @{

/// The result of an elementwise function: a new local tensor in the layout of the old one.
template <class L>
L relaid(Tensor local, const L& like) {
  return laid<L>(like.group(), std::move(local), like.global_shape(), place_of(like));
}

namespace detail {

template <class F, class L>
L combine(const char* call, F function, L&& a, const L& b) {
  require_same_group(call, a, b);
  require_same_cut(call, Access::tensor(a).shape(), Access::place(a), Access::tensor(b).shape(),
                   Access::place(b));
  Tensor local = function(Access::take(std::move(a)), Access::tensor(b));
  return relaid<L>(std::move(local), a);
}

/// Layouts that a function which is not linear takes.
template <class L>
concept Reduced = Layout<L> && !Unreduced<L> && !Is<L, NoLayout>;

}  // namespace detail

/// max(z, 0). Reuses the memory of an rvalue.
template <detail::Reduced L>
auto relu(L&& z, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  using Value = std::remove_cvref_t<L>;
  if constexpr (std::is_lvalue_reference_v<L>)
    return relaid<Value>(relu(detail::Access::tensor(z)), z);
  else
    return relaid<Value>(relu(detail::Access::take(std::move(z))), z);
}

/// dz = dh where z > 0, else 0, in the memory of dh. z may be ReLU's argument or its result.
template <detail::Reduced L>
requires(!std::is_lvalue_reference_v<L>) L
    relu_backward(L&& dh, const L& z, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  detail::require_gradient_of(detail::Access::tensor(z).shape(), detail::Access::tensor(dh).shape());
  return detail::combine(
      "relu_backward", [](Tensor&& d, const Tensor& t) { return relu_backward(std::move(d), t); },
      std::move(dh), z);
}

/// The second operand of +, with the source line: an operator cannot have a third argument.
template <Layout A>
struct Addend {
  Addend(const A& b, SourceLine where = SourceLine::current()) : value(&b), where(where) {}
#include "engine/layouts/refused/addend.inc"
  const A* value = nullptr;
  SourceLine where;
};

/// a + b in the memory of a. The sum of two Partials is a Partial.
template <Layout A>
requires(!std::is_lvalue_reference_v<A>) A operator+(A&& a, std::type_identity_t<Addend<A>> b) {
  const CallSite call(b.where);
  return detail::combine(
      "operator+", [](Tensor&& x, const Tensor& y) { return add(std::move(x), y); }, std::move(a), *b.value);
}

/// a * factor in the memory of a. It is linear, so it also exists for a Partial.
template <Layout L>
requires(!std::is_lvalue_reference_v<L>) L
    scale(L&& a, float factor, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  return relaid<L>(scale(detail::Access::take(std::move(a)), factor), a);
}

/// The same elements under another shape. Every device has all of them, or an addend of each.
template <Layout L>
requires(!std::is_lvalue_reference_v<L> && (Is<L, Replicated> || Is<L, Partial>)) L
    reshaped(L&& t, const Shape& shape, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  return detail::Access::make<L>(t.group(), detail::Access::take(std::move(t)).reshaped(shape), shape, 0);
}

/// sum += addend, in the memory of the sum. If the sum is empty, the addend becomes the sum.
template <Layout L>
void accumulate(L& sum, L addend, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  sum = sum.is_empty() ? std::move(addend) : std::move(sum) + addend;
}
/// @}

#include "engine/layouts/refused/elementwise.inc"

/// Joins the elements of several Partials in one, a bucket, so that one reduction reduces them all.
Partial pack(std::vector<Partial>&& addends, SourceLine where = SourceLine::current());
/// The reverse of pack, after the reduction: cuts the bucket into tensors of these shapes.
std::vector<Replicated> unpack(Replicated&& row, const std::vector<Shape>& shapes,
                               SourceLine where = SourceLine::current());

}  // namespace shard
