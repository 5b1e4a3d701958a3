#include "engine/layers/tokens/embedding.hpp"

namespace shard {

namespace {

/// The rows of ids in this device's slice of a table; no_slot for others.
Indices rows_here(const Indices& ids, const Sharded<0>& table) {
  return in_slice(ids, {table.offset(), table.offset() + table.local().extent(0)});
}

}  // namespace

Partial embedding(const Sharded<0>& table, const Indices& ids, SourceLine where) {
  const CallSite call(where);
  return Partial(table.group(), combine_rows(table.local(), rows_here(ids, table), 1));
}

Sharded<0> embedding(const Replicated& table, const Indices& mine, Index offset, Index rows,
                     SourceLine where) {
  const CallSite call(where);
  return Sharded<0>(table.group(), gather_rows(table.local(), mine), {rows, table.local().extent(1)}, offset);
}

Sharded<0> embedding_backward(const Replicated& dx, const Indices& ids, const Sharded<0>& table,
                              SourceLine where) {
  const CallSite call(where);
  Tensor d(table.local().shape());
  scatter_add_rows(dx.local(), rows_here(ids, table), d);
  return relaid(std::move(d), table);
}

}  // namespace shard
