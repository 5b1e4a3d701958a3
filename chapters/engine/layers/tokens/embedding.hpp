#pragma once

/// Embedding: a token's activation is its row of a table (V, D). Where the vocabulary is divided, a device
/// has some rows of the table, and adds 0 for all other tokens: its result is an addend.

#include "engine/device/layer_operations.hpp"
#include "engine/layers/layout_of_rows.hpp"
#include "engine/layers/tokens/tokens.hpp"

namespace shard {

/// Layouts of a table with whole columns: on every device, on one, or some columns on each.
template <class L>
concept WholeColumns = std::same_as<L, Replicated> || std::same_as<L, Owned> || std::same_as<L, Sharded<1>>;

/// The rows of a table for these ids, (T, D), or this device's columns of them. Every device passes the same
/// ids.
template <WholeColumns L>
L embedding(const L& table, const Indices& ids, SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  using detail::Access;
  return Access::make<L>(table.group(), gather_rows(Access::tensor(table), ids),
                         {ids.size(), table.global_shape()[1]}, Access::place(table));
}
/// With a divided vocabulary: S0 → P.
Partial embedding(const Sharded<0>& table, const Indices& ids, SourceLine where = SourceLine::current());
/// Different ids on each device give S0: `rows` of them in all, of which this device's begin at `offset`.
Sharded<0> embedding(const Replicated& table, const Indices& mine, Index offset, Index rows,
                     SourceLine where = SourceLine::current());

/// The gradient of a table (V, D): each row of dx (T, D) is added to the row of its token.
/// @{
/// If several devices have rows of a token, their sums are addends.
template <WholeRows L>
SumOverRows<L> embedding_backward(const L& dx, const Indices& ids, Index vocabulary,
                                  SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  const Tensor& rows = detail::Access::tensor(dx);
  Tensor d(Shape{vocabulary, rows.extent(1)});
  scatter_add_rows(rows, ids, d);
  return sum_over(std::move(d), dx);
}
/// Of a table with whole columns. dx (T, D) are this device's columns of all rows.
template <WholeColumns L>
L embedding_backward(const Tensor& dx, const Indices& ids, const L& table,
                     SourceLine where = SourceLine::current()) {
  const CallSite call(where);
  Tensor d(detail::Access::tensor(table).shape());
  scatter_add_rows(dx, ids, d);
  return relaid(std::move(d), table);
}
/// With a divided vocabulary, each device adds up the rows of its own tokens.
Sharded<0> embedding_backward(const Replicated& dx, const Indices& ids, const Sharded<0>& table,
                              SourceLine where = SourceLine::current());
/// @}

}  // namespace shard
