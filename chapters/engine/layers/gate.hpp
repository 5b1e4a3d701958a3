#pragma once

/// The gate of a feed-forward (Shazeer 2020): h = act(g) u, element by element. In SwiGLU, act is silu. In
/// GEGLU, it is gelu.

#include "engine/layers/arithmetic.hpp"
#include "engine/layouts/layouts.hpp"

namespace shard {

enum class Gate { silu, gelu };

/// g, u (T, F): h (T, F).
Tensor gated(const Tensor& g, const Tensor& u, Gate gate, const Arithmetic& how);
/// Replaces g by dg, and u by du.
void gated_backward(const Tensor& dh, Tensor& g, Tensor& u, Gate gate, const Arithmetic& how);

/// Elements are independent, so any layout works but an addend's.
template <detail::Reduced L>
L gated(const L& g, const L& u, Gate gate, const Arithmetic& how, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  detail::require_same_cut("gated", detail::Access::tensor(g).shape(), detail::Access::place(g),
                           detail::Access::tensor(u).shape(), detail::Access::place(u));
  return detail::relaid(gated(detail::Access::tensor(g), detail::Access::tensor(u), gate, how), g);
}
template <detail::Reduced L>
void gated_backward(const L& dh, L& g, L& u, Gate gate, const Arithmetic& how,
                    SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  detail::require_same_cut("gated_backward", detail::Access::tensor(dh).shape(), detail::Access::place(dh),
                           detail::Access::tensor(g).shape(), detail::Access::place(g));
  Tensor dg = detail::Access::take(std::move(g)), du = detail::Access::take(std::move(u));
  gated_backward(detail::Access::tensor(dh), dg, du, gate, how);
  g = detail::relaid(std::move(dg), g), u = detail::relaid(std::move(du), u);
}

}  // namespace shard
