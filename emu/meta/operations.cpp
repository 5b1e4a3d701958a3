/// Kernels that compute nothing, since tensors have no elements.

#include "emu/meta/memory.hpp"
#include "engine/device/books/memory.hpp"
#include "engine/device/layer_operations.hpp"
#include "engine/device/runtime/operations/axis_cuts.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

void product(Operand, Operand, Tensor&, Extents, float) {}
void to_bf16(const Tensor&, Tensor&) {}
void sum_of_bf16(const Tensor&, Tensor&) {}

void relu(const Tensor&, Tensor&) {}
void silu(const Tensor&, Tensor&) {}
void gelu(const Tensor&, Tensor&) {}
void sigmoid(Tensor&) {}
void hyperbolic_tangent(Tensor&) {}
void scale(Tensor&, float) {}
void inverse_root(Tensor&, float, float) {}
void round_to(Tensor&, float, float) {}
void relu_backward(Tensor&, const Tensor&) {}
void sigmoid_backward(Tensor&, const Tensor&) {}
void hyperbolic_tangent_backward(Tensor&, const Tensor&) {}
void silu_backward(Tensor&, const Tensor&) {}
void gelu_backward(Tensor&, const Tensor&) {}
void add(Tensor&, const Tensor&) {}
void subtract(Tensor&, const Tensor&) {}
void multiply(Tensor&, const Tensor&) {}
void scaled_difference(Tensor&, const Tensor&, float) {}
Later<double> sum_of_squares(const Tensor&) {
  return 0;
}
bool all_finite(const Tensor&) {
  return true;
}

/// Copies what the host has written.
void copy_slice(const Tensor& t, int axis, Range range, Tensor& part) {
  const std::span<const float> written = meta::host_values(t);
  if (written.empty()) return;
  const Index inner = runtime::elements_after(t.shape(), axis), length = range.size() * inner;
  std::vector<float> values;
  for (Index row = 0; row < runtime::elements_before(t.shape(), axis); ++row) {
    const auto first = written.begin() + (row * t.extent(axis) + range.begin) * inner;
    values.insert(values.end(), first, first + length);
  }
  meta::storage(part).from_host = one_of_equal(std::move(values));
}
void paste_slice(Tensor&, int, Range, const Tensor&) {}

void sgd_update(Tensor&, Range, const Tensor&, float) {}
void integer_update(Tensor&, Range, const Tensor&) {}
void adam_update(Tensor&, Range, const Tensor&, Tensor&, Tensor&, const AdamSettings&, const AdamStep&) {}

void row_sums(const Tensor&, Tensor&) {}
void row_dots(const Tensor&, const Tensor&, Tensor&) {}
void row_max(const Tensor&, Tensor&) {}
void column_sums(const Tensor&, Tensor&) {}
void column_dots(const Tensor&, const Tensor&, Tensor&) {}
void scale_rows(Tensor&, const Tensor&) {}
void divide_rows(Tensor&, const Tensor&) {}
void add_to_columns(Tensor&, const Tensor&) {}
void scale_columns(Tensor&, const Tensor&) {}
void add_to_rows(Tensor&, const Tensor&) {}
void add_numbers_to_rows(Tensor&, std::span<const float>) {}
void exponentials(Tensor&, const Tensor&, ExponentialBase) {}
void softmax(Tensor&) {}
void softmax_backward(Tensor&, const Tensor&) {}

void powers_of_scores(Tensor&, const ScoreRule&, const Tensor*, Tensor&, Tensor&) {}
void softmax_of_scores(Tensor&, const ScoreRule&, const Tensor&, const Tensor&) {}
void softmax_of_scores_backward(Tensor&, const Tensor&, const Tensor&, float) {}
void stack_heads(const Tensor&, const HeadBlock&, Tensor&) {}
void add_heads(Tensor&, const HeadBlock&, const Tensor&) {}
void rotate(Tensor&, std::span<const Index>, const std::vector<double>&, double) {}

Later<std::vector<Index>> largest_columns(const Tensor& t, Index k) {
  return runtime::columns_in_turn(t.extent(0), k, t.extent(1));
}
Tensor largest_counts(const Tensor& t, Index k) {
  return runtime::counted(largest_columns(t, k), t.extent(1));
}
void take_columns(const Tensor&, const Indices&, Index, Tensor&) {}
void put_columns(Tensor&, const Tensor&, const Indices&) {}
void gather_rows(const Tensor&, const Indices&, Tensor&) {}
void scatter_rows(Tensor&, const Tensor&, const Indices&) {}
void scale_rows_at(Tensor&, const Tensor&, const Indices&) {}
void combine_rows(const Tensor&, const Indices&, const Tensor*, Index, Tensor&) {}
void dot_rows(const Tensor&, const Tensor&, const Indices&, Index, Tensor&) {}
void scatter_add_rows(Tensor&, const Tensor&, const Indices&) {}
void losses_of_labels(const Tensor&, const Tensor&, const Tensor&, const Indices&, ExponentialBase, Tensor&) {
}
void subtract_at_columns(Tensor&, const Indices&, const Tensor&) {}

}  // namespace shard::kernels
