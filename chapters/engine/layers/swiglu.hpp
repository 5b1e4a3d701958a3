#pragma once

/// SwiGLU (Shazeer 2020), the gate of a feed-forward: h = silu(g) u, element by element.

#include "engine/layers/arithmetic.hpp"
#include "engine/layouts.hpp"

namespace shard {

/// g, u (T, F): h (T, F).
Tensor swiglu(const Tensor& g, const Tensor& u, const Arithmetic& how);
/// Makes dg of g and du of u, in their memory.
void swiglu_backward(const Tensor& dh, Tensor& g, Tensor& u, const Arithmetic& how);

/// Elements do not see one another, so any layout will do but that of an addend.
template <detail::Reduced L>
L swiglu(const L& g, const L& u, const Arithmetic& how, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  detail::require_same_cut("swiglu", detail::Access::tensor(g).shape(), detail::Access::place(g),
                           detail::Access::tensor(u).shape(), detail::Access::place(u));
  return detail::relaid(swiglu(detail::Access::tensor(g), detail::Access::tensor(u), how), g);
}
template <detail::Reduced L>
void swiglu_backward(const L& dh, L& g, L& u, const Arithmetic& how,
                     SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  detail::require_same_cut("swiglu_backward", detail::Access::tensor(dh).shape(), detail::Access::place(dh),
                           detail::Access::tensor(g).shape(), detail::Access::place(g));
  Tensor dg = detail::Access::take(std::move(g)), du = detail::Access::take(std::move(u));
  swiglu_backward(detail::Access::tensor(dh), dg, du, how);
  g = detail::relaid(std::move(dg), g), u = detail::relaid(std::move(du), u);
}

}  // namespace shard
