#pragma once

/// A bias: the weights of one more input, which is 1 in each row. h = n W + 1 b, with n (T, D), W (D, F), a column
/// 1 (T, 1) and b (1, F). So b is cut as the columns of W are, and its gradient, 1ᵀ dh, is a gradient as dW is.

#include "engine/layers/feed_forward.hpp"
#include "engine/layers/layout_of_rows.hpp"

namespace shard {

/// A column of ones (T, 1), for rows that lie as those of n.
template <WholeRows X>
X ones_for(const X& n) {
  const Index rows = detail::Access::tensor(n).extent(0);
  return rows_like(Tensor::from_host({rows, 1}, std::vector<float>(static_cast<std::size_t>(rows), 1)), n);
}
/// h (T, F) += ones (T, 1) times bias (1, F), in the memory of h.
template <WholeRows X, Layout C>
void add_bias(ProductOf<X, C>& h, const X& ones, const C& bias, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  using detail::Access;
  detail::require_same_group("add_bias", ones, bias);
  Tensor sum = Access::take(std::move(h));
  matmul_accumulate(Access::operand(ones, false), Access::operand(bias, false), sum);
  h = relaid(std::move(sum), h);
}

}  // namespace shard
