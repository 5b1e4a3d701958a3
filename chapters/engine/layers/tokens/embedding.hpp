#pragma once

/// Embedding: a token's activation is its row of a table (V, D). Where the vocabulary is divided, a device
/// has some rows of the table, and adds 0 for all other tokens: its result is an addend.

#include "engine/layers/layout_of_rows.hpp"
#include "engine/layers/tokens/tokens.hpp"

namespace shard {

/// The rows of a table for the tokens of these sequences, (T, D). The same tokens on each device give R.
/// Different tokens on each device, `rows` of them in all, give S0.
/// @{
Replicated embedding(const Replicated& table, const Tokens& all, SourceLine where = SourceLine::current());
Owned embedding(const Owned& table, const Tokens& all, SourceLine where = SourceLine::current());
/// `offset`: the index of this device's first row among `rows`.
Sharded<0> embedding(const Replicated& table, const Tokens& mine, Index offset, Index rows,
                     SourceLine where = SourceLine::current());
/// With a divided vocabulary: S0 → P.
Partial embedding(const Sharded<0>& table, const Tokens& all, SourceLine where = SourceLine::current());
/// @}

/// The gradient of the table, (V, D): each row of dx (T, D) is added to the row of its token. If several
/// devices have rows of a token, their sums are addends.
template <WholeRows L>
SumOverRows<L> embedding_backward(const L& dx, const Tokens& tokens, Index vocabulary,
                                  SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  const Tensor& rows = detail::Access::tensor(dx);
  Tensor d(Shape{vocabulary, rows.extent(1)});
  scatter_add_rows(rows, tokens.ids, d);
  return detail::sum_over(std::move(d), dx);
}
/// The gradient of a table whose rows are divided: each device adds up the rows of its own tokens.
Sharded<0> embedding_backward(const Replicated& dx, const Tokens& all, const Sharded<0>& table,
                              SourceLine where = SourceLine::current());

}  // namespace shard
