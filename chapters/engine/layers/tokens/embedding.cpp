#include "engine/layers/tokens/embedding.hpp"

namespace shard {

namespace {

/// The rows of the vocabulary in this device's slice of a table.
Range slice_of(const Sharded<0>& table) {
  return {table.offset(), table.offset() + table.local().extent(0)};
}

}  // namespace

Replicated embedding(const Replicated& table, const Tokens& all, SourceLine where) {
  const CallSite call(where);
  return Replicated(table.group(), gather_rows(table.local(), all.ids));
}

Owned embedding(const Owned& table, const Tokens& all, SourceLine where) {
  const CallSite call(where);
  return Owned::mine(table.group(), gather_rows(table.local(), all.ids));
}

Sharded<0> embedding(const Replicated& table, const Tokens& mine, Index offset, Index rows,
                     SourceLine where) {
  const CallSite call(where);
  return Sharded<0>(table.group(), gather_rows(table.local(), mine.ids), {rows, table.local().extent(1)},
                    offset);
}

Partial embedding(const Sharded<0>& table, const Tokens& all, SourceLine where) {
  const CallSite call(where);
  return Partial(table.group(), combine_rows(table.local(), in_slice(all.ids, slice_of(table)), 1));
}

Sharded<0> embedding_backward(const Replicated& dx, const Tokens& all, const Sharded<0>& table,
                              SourceLine where) {
  const CallSite call(where);
  Tensor d(table.local().shape());
  scatter_add_rows(dx.local(), in_slice(all.ids, slice_of(table)), d);
  return detail::relaid(std::move(d), table);
}

}  // namespace shard
