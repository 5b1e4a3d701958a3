/// The largest elements of rows, or columns in turn.

#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/kernels.hpp"
#include "engine/device/this_device.hpp"

namespace shard {

namespace {

struct Choices {
  bool are_in_turn = false;
};

}  // namespace

void choose_in_turn(bool is_wanted) {
  device().state<Choices>().are_in_turn = is_wanted;
}

std::vector<Index> runtime::columns_in_turn(Index rows, Index k, Index n) {
  std::vector<Index> columns;
  columns.reserve(static_cast<std::size_t>(rows * k));
  for (Index i = 0; i < rows * k; ++i) columns.push_back(i % n);
  return columns;
}

Tensor runtime::counted(const std::vector<Index>& columns, Index n) {
  std::vector<float> counts(static_cast<std::size_t>(n));
  for (Index column : columns) ++counts[static_cast<std::size_t>(column)];
  return Tensor::from_host({n}, counts);
}

Later<std::vector<Index>> top_k(const Tensor& t, Index k, SourceLine where) {
  const CallSite call(where);
  const runtime::Noted noted("top_k", t.size(), {&t}, nullptr);
  require_columns(t, k);
  if (device().state<Choices>().are_in_turn) return runtime::columns_in_turn(t.extent(0), k, t.extent(1));
  return kernels::largest_columns(t, k);
}

Tensor top_k_counts(const Tensor& t, Index k, SourceLine where) {
  const CallSite call(where);
  const runtime::Noted noted("top_k_counts", t.size(), {&t}, nullptr);
  require_columns(t, k);
  if (!device().state<Choices>().are_in_turn) return kernels::largest_counts(t, k);
  return runtime::counted(runtime::columns_in_turn(t.extent(0), k, t.extent(1)), t.extent(1));
}

}  // namespace shard
