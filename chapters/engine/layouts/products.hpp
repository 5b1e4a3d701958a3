#pragma once

/// Products of layouts. (Part of layouts.hpp.)

#include "engine/layouts/layout_types.hpp"

namespace shard {

/// \name Products
/// @{

/// A matrix that a product reads transposed: axes 0 and 1 change places.
template <Layout L>
struct Transposed {
  const L& matrix;
};
template <Layout L>
Transposed<L> transposed(const L& matrix) {
  return {matrix};
}

namespace detail {

/// The layout of an operand as the product reads it.
template <class L>
struct ReadAs {
  using type = L;
};
template <class L>
struct ReadAs<Transposed<L>> {
  using type = L;
};
template <int Axis>
requires(Axis < 2) struct ReadAs<Transposed<Sharded<Axis>>> {
  using type = Sharded<1 - Axis>;
};

/// The products that need no communication, with the layout of the result. (Declared only, as a table.)
Replicated product_of(Replicated&, Replicated&);
Sharded<0> product_of(Sharded<0>&, Replicated&);
Sharded<0> product_of(Sharded<0>&, ReplicatedFactor&);
Sharded<1> product_of(Replicated&, Sharded<1>&);
Partial product_of(Sharded<1>&, Sharded<0>&);
Partial product_of(Partial&, Replicated&);
Partial product_of(Replicated&, Partial&);
Owned product_of(Owned&, Owned&);

template <class A, class B>
struct Product {
  static constexpr bool legal = false;
};
template <class Result>
struct Legal {
  static constexpr bool legal = true;
  using type = Result;
};
template <class A, class B>
requires requires(A& a, B& b) {
  product_of(a, b);
}
struct Product<A, B> : Legal<decltype(product_of(std::declval<A&>(), std::declval<B&>()))> {};

template <Layout L>
const L& matrix_of(const L& matrix) {
  return matrix;
}
template <Layout L>
const L& matrix_of(const Transposed<L>& t) {
  return t.matrix;
}
template <class L>
inline constexpr bool is_transposed = false;
template <class L>
inline constexpr bool is_transposed<Transposed<L>> = true;

template <class L>
concept Factor = Layout<L> || is_transposed<L>;

/// An operand's layout as the product reads it.
template <class A>
using Read = typename ReadAs<A>::type;
template <class A, class L>
concept Reads = Factor<A> && std::same_as<Read<A>, L>;
template <class A, class B>
inline constexpr bool has_product = Product<Read<A>, Read<B>>::legal;

/// \throws Error argument unless both global shapes are matrices that fit.
Shape product_shape(const Shape& a, bool a_transposed, const Shape& b, bool b_transposed);

}  // namespace detail

/// The global shape of a product. \throws Error argument unless both are matrices that fit
template <detail::Factor A, detail::Factor B>
Shape product_shape(const A& a, const B& b) {
  return detail::product_shape(detail::matrix_of(a).global_shape(), detail::is_transposed<A>,
                               detail::matrix_of(b).global_shape(), detail::is_transposed<B>);
}

/// The matrix product of two layouts, each as it is or `transposed(x)`. Every device multiplies its local
/// tensors, and the result type is R·R=R, S0·R=S0, R·S1=S1, S1·S0=P, P·R=P, R·P=P, O·O=O.
/// \throws Error argument when shapes do not fit or S1·S0 are cut at different places.
template <detail::Factor A, detail::Factor B>
requires detail::has_product<A, B>
auto matmul(const A& a, const B& b, SourceLine where = SourceLine::current()) {
  using Result = typename detail::Product<detail::Read<A>, detail::Read<B>>::type;
  const CallSite call(where);
  const auto& x = detail::matrix_of(a);
  const auto& y = detail::matrix_of(b);
  constexpr bool tx = detail::is_transposed<A>;
  constexpr bool ty = detail::is_transposed<B>;
  const Tensor& x_local = detail::Access::tensor(x);
  const Tensor& y_local = detail::Access::tensor(y);
  Index x_place = detail::Access::place(x);
  Index y_place = detail::Access::place(y);
  Shape global = product_shape(a, b);
  detail::require_same_group("matmul", x, y);
  if constexpr (std::same_as<Result, Owned>) {
    detail::require_same_owner("matmul", x, x.owner(), y.owner());
    if (!x.is_mine()) return detail::Access::make<Owned>(x.group(), Tensor(), std::move(global), x_place);
  }
  if constexpr (std::same_as<Result, Partial> && Slice<decltype(x)>)
    detail::require_same_cut("matmul", {x_local.extent(tx ? 0 : 1)}, x_place, {y_local.extent(ty ? 1 : 0)},
                             y_place);
  Tensor local = matmul(detail::Access::operand(x, tx), detail::Access::operand(y, ty));
  return detail::Access::make<Result>(x.group(), std::move(local), std::move(global),
                                      std::same_as<Result, Sharded<1>> ? y_place : x_place);
}
/// @}

#include "engine/layouts/refused/products.inc"

}  // namespace shard
