#pragma once

/// Embedding: a token's activation is its row of a table (V, D). Where the vocabulary is divided, a device
/// has some rows of the table, and 0 for other tokens: an addend.

#include "engine/layers/layout_of_rows.hpp"
#include "engine/layers/tokens.hpp"

namespace shard {

/// The rows of a table for the tokens of these sequences, (T, D). As many tokens on each device: R. Other
/// tokens on each device, as many as `rows` says of the whole: S0.
/// @{
Replicated embedding(const Replicated& table, const Tokens& all, SourceLine where = SourceLine::current());
Owned embedding(const Owned& table, const Tokens& all, SourceLine where = SourceLine::current());
/// `offset`: the first of this device's rows, of `rows` in all.
Sharded<0> embedding(const Replicated& table, const Tokens& mine, Index offset, Index rows,
                     SourceLine where = SourceLine::current());
/// The vocabulary is divided: S0 → P.
Partial embedding(const Sharded<0>& table, const Tokens& all, SourceLine where = SourceLine::current());
/// @}

/// The gradient of the table, (V, D), of dx (T, D): each row is added to that of its token. A token that
/// occurs in rows of several devices gets addends.
template <WholeRows L>
SumOverRows<L> embedding_backward(const L& dx, const Tokens& tokens, Index vocabulary,
                                  SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  const Tensor& rows = detail::Access::tensor(dx);
  Tensor d(Shape{vocabulary, rows.extent(1)});
  scatter_add_rows(rows, tokens.ids, d);
  return detail::sum_over(std::move(d), dx);
}
/// Of a table whose rows are divided: each device adds up the rows of its tokens.
Sharded<0> embedding_backward(const Replicated& dx, const Tokens& all, const Sharded<0>& table,
                              SourceLine where = SourceLine::current());

}  // namespace shard
