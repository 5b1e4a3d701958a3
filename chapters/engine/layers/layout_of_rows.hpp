#pragma once

/// Layouts of activations with whole rows, and the layouts of weights and sums that follow from them.

#include "engine/layouts/on_mesh.hpp"

namespace shard {

namespace detail {

template <class Rows>
struct ByRows;
template <>
struct ByRows<Replicated> {
  using Weight = Replicated;
  using Gradient = Replicated;
};
template <>
struct ByRows<Sharded<0>> {
  using Weight = Replicated;
  using Gradient = Partial;
};
template <>
struct ByRows<Owned> {
  using Weight = Owned;
  using Gradient = Owned;
};

template <>
struct ByRows<OfWholePieces<0>> : ByRows<Sharded<0>> {};
/// On a mesh: letter by letter.
template <class Axes, class... L>
requires(requires { typename ByRows<L>::Weight; } && ...) struct ByRows<OnMesh<Axes, L...>> {
  using Weight = OnMesh<Axes, typename ByRows<L>::Weight...>;
  using Gradient = OnMesh<Axes, typename ByRows<L>::Gradient...>;
};

}  // namespace detail

/// Layouts with whole rows: on every device, divided over the devices, or on one device.
template <class L>
concept WholeRows = requires {
  typename detail::ByRows<L>::Weight;
};
/// The layout of a weight that is used in each row: every device with rows has all of it.
template <WholeRows L>
using WeightFor = typename detail::ByRows<L>::Weight;
/// The layout of a sum over the rows, such as that weight's gradient. Divided rows give an addend.
template <WholeRows L>
using SumOverRows = typename detail::ByRows<L>::Gradient;

/// Rows of another width, in the layout and at the places of `like`.
template <WholeRows L>
L rows_like(Tensor rows, const L& like) {
  Shape global = rows.shape();
  global[0] = like.global_shape()[0];
  return laid<L>(like.group(), std::move(rows), std::move(global), place_of(like));
}
/// A sum over the rows of `rows`, in its layout.
template <WholeRows L>
SumOverRows<L> sum_over(Tensor sum, const L& rows) {
  Shape global = sum.shape();
  return laid<SumOverRows<L>>(rows.group(), std::move(sum), std::move(global), place_of(rows));
}

}  // namespace shard
