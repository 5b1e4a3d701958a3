#pragma once

/// The feed-forward of a block, token by token: y = (act(n gate) · n up) down, or y = relu(n up) down.

#include "engine/layers/arithmetic.hpp"
#include "engine/layers/layout_of_rows.hpp"
#include "engine/layouts/layouts.hpp"

namespace shard {

/// The hidden activation: ReLU, or a gate (Shazeer 2020), h = act(g) u, element by element. In SwiGLU, act is
/// silu. In GEGLU, it is gelu.
enum class Hidden { swiglu, geglu, relu };

/// g, u (T, F): h (T, F).
Tensor gated(const Tensor& g, const Tensor& u, Hidden hidden, const Arithmetic& how);
/// Replaces g by dg, and u by du.
void gated_backward(const Tensor& dh, Tensor& g, Tensor& u, Hidden hidden, const Arithmetic& how);

/// Elements are independent, so any layout works but an addend's.
template <detail::Reduced L>
L gated(const L& g, const L& u, Hidden hidden, const Arithmetic& how,
        SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  detail::require_same_cut("gated", detail::Access::tensor(g).shape(), detail::Access::place(g),
                           detail::Access::tensor(u).shape(), detail::Access::place(u));
  return relaid(gated(detail::Access::tensor(g), detail::Access::tensor(u), hidden, how), g);
}
template <detail::Reduced L>
void gated_backward(const L& dh, L& g, L& u, Hidden hidden, const Arithmetic& how,
                    SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  detail::require_same_cut("gated_backward", detail::Access::tensor(dh).shape(), detail::Access::place(dh),
                           detail::Access::tensor(g).shape(), detail::Access::place(g));
  Tensor dg = detail::Access::take(std::move(g)), du = detail::Access::take(std::move(u));
  gated_backward(detail::Access::tensor(dh), dg, du, hidden, how);
  g = relaid(std::move(dg), g), u = relaid(std::move(du), u);
}

/// The weights: `gate` and `up` (D, F) have layout C, and `down` (F, D) has layout R. Whole weights: R and R.
/// Cut along F: S1 and S0. With ReLU, there is no `gate`.
template <Layout C, Layout R>
struct FeedForward {
  C gate, up;
  R down;
};

/// What the backward pass needs. H is the layout of the hidden activation.
template <Layout H>
struct FeedForwardKept {
  H g, u, h;  // (T, F)   with ReLU: only h
};

/// The layout of a product.
template <class A, class B>
using ProductOf = typename detail::Product<detail::Read<A>, detail::Read<B>>::type;

/// y (T, D) from n (T, D). R·R·R = R, S0·R·R = S0, O·O·O = O, and R·S1·S0 = P.
template <Layout X, Layout C, Layout R>
ProductOf<ProductOf<X, C>, R> feed_forward(const X& n, const FeedForward<C, R>& w, const Arithmetic& how,
                                           FeedForwardKept<ProductOf<X, C>>& kept,
                                           Hidden hidden = Hidden::swiglu,
                                           SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  if (hidden == Hidden::relu) {
    kept.h = relu(matmul(n, w.up));  // (T, F)
  } else {
    kept.g = matmul(n, w.gate);                   // (T, F)
    kept.u = matmul(n, w.up);                     // (T, F)
    kept.h = gated(kept.g, kept.u, hidden, how);  // (T, F)
  }
  return matmul(kept.h, w.down);  // (T, D)
}

/// The gradients of the weights, and of n.
template <Layout X, Layout C, Layout R>
struct FeedForwardGradients {
  using H = ProductOf<X, C>;
  ProductOf<Transposed<X>, H> gate, up;  // (D, F)
  ProductOf<Transposed<H>, X> down;      // (F, D)
  ProductOf<H, Transposed<C>> n;         // (T, D)
};

/// dy (T, D) has the layout of n. Where F is cut, the gradient of n is an addend.
template <Layout X, Layout C, Layout R>
FeedForwardGradients<X, C, R> feed_forward_backward(const X& dy, const X& n, const FeedForward<C, R>& w,
                                                    const Arithmetic& how,
                                                    FeedForwardKept<ProductOf<X, C>> kept,
                                                    Hidden hidden = Hidden::swiglu,
                                                    SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  FeedForwardGradients<X, C, R> d;
  d.down = matmul(transposed(kept.h), dy);  // (F, D)
  if (hidden == Hidden::relu) {
    kept.u = relu_backward(matmul(dy, transposed(w.down)), kept.h);  // (T, F)
    d.up = matmul(transposed(n), kept.u);                            // (D, F)
    d.n = matmul(kept.u, transposed(w.up));                          // (T, D)
    return d;
  }
  kept.h = matmul(dy, transposed(w.down));                  // (T, F)   dh
  gated_backward(kept.h, kept.g, kept.u, hidden, how);      // dg and du
  d.gate = matmul(transposed(n), kept.g);                   // (D, F)
  d.up = matmul(transposed(n), kept.u);                     // (D, F)
  d.n = matmul(kept.g, transposed(w.gate));                 // (T, D)
  d.n = std::move(d.n) + matmul(kept.u, transposed(w.up));  // (T, D)
  return d;
}

}  // namespace shard
