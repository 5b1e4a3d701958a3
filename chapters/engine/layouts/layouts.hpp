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

namespace detail {

/// The result of an elementwise function: a new local tensor in the layout of the old one.
template <class L>
L relaid(Tensor local, const L& like) {
  return Access::make<L>(like.group(), std::move(local), like.global_shape(), Access::place(like));
}

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
    return detail::relaid<Value>(relu(detail::Access::tensor(z)), z);
  else
    return detail::relaid<Value>(relu(detail::Access::take(std::move(z))), z);
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
  /// Refuses a tensor of another layout.
  template <Layout B>
  requires(!detail::Is<B, A> && !detail::Is<B, detail::NoLayout> &&
           detail::Unreduced<A> == detail::Unreduced<B>)
      __attribute__((unavailable(
          "the operands of + have different layouts: gather or shard one of them first"))) Addend(const B&);
  template <Layout B>
  requires(detail::Unreduced<A> ? detail::Reduced<B> : detail::Unreduced<B>) __attribute__((
      unavailable("a Partial and a reduced tensor cannot be added, as the reduced one would count once per "
                  "device: reduce the Partial first (all_reduce or reduce_scatter)"))) Addend(const B&);
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
  return detail::relaid<L>(scale(detail::Access::take(std::move(a)), factor), a);
}

/// The same elements under another shape. Every device has all of them, or an addend of each.
template <Layout L>
requires(!std::is_lvalue_reference_v<L> && (detail::Is<L, Replicated> || detail::Is<L, Partial>)) L
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

/// \name Elementwise functions of layouts that do not fit. The compiler answers each with one sentence.
/// @{
template <Layout L>
requires(!detail::Reduced<L>) detail::NoLayout relu(L&&) {
  static_assert(detail::is_no_layout<L>,
                "ReLU is not linear, so f(a) + f(b) is not f(a + b): reduce the Partial first (all_reduce or "
                "reduce_scatter)");
  return {};
}
template <Layout L, Layout Z>
requires(!std::is_lvalue_reference_v<L> && !(std::same_as<L, Z> && detail::Reduced<L>)) detail::NoLayout
    relu_backward(L&&, const Z&) {
  static_assert(!detail::Unreduced<L>,
                "the gradient is a Partial, and ReLU's derivative is taken of the sum: reduce the Partial "
                "first (all_reduce or reduce_scatter)");
  static_assert(detail::Unreduced<L> || !detail::Unreduced<Z>,
                "the mask is taken from a Partial, one addend of a sum: use what was reduced (all_reduce or "
                "reduce_scatter)");
  static_assert(!detail::Reduced<L> || !detail::Reduced<Z>,
                "the gradient and the mask have different layouts: gather or shard one of them first");
  return {};
}
template <detail::Slice L>
detail::NoLayout reshaped(L&&, const Shape&) {
  static_assert(detail::always_false<L>,
                "a slice of another shape lies elsewhere: Sharded<Axis>(group(), "
                "std::move(x).local().reshaped(shape), global_shape, offset) claims where");
  return {};
}
template <Layout L, Layout A>
requires(!detail::Is<A, L>) void accumulate(L&, A&&) {
  static_assert(
      !(detail::Reduced<L> && detail::Unreduced<A>),
      "the sum is reduced and the addend a Partial: reduce it first (all_reduce or reduce_scatter)");
  static_assert(!(detail::Unreduced<L> && detail::Reduced<A>),
                "the sum is a Partial and the addend reduced: it would count once per device");
  static_assert(detail::Unreduced<L> != detail::Unreduced<A> || detail::Is<A, detail::NoLayout>,
                "the sum and the addend have different layouts: gather or shard the addend first");
}
/// @}

/// Joins the elements of several Partials in one, a bucket, so that one reduction reduces them all.
Partial pack(std::vector<Partial>&& addends, SourceLine where = SourceLine::current());
/// The reverse of pack, after the reduction: cuts the bucket into tensors of these shapes.
std::vector<Replicated> unpack(Replicated&& row, const std::vector<Shape>& shapes,
                               SourceLine where = SourceLine::current());

}  // namespace shard
