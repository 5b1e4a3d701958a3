/// Operations on rows: softmax, top-k, and gathering, scattering and combining rows.

#include <algorithm>

#include "emu/operations/host_memory.hpp"
#include "emu/operations/vectors.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

using emu::row_of;

SHARDBOOK_VECTORS void softmax(Tensor& z) {
  const Index n = z.extent(1);
  for (Index i = 0; i < z.extent(0); ++i) {
    float* row = row_of(z, i);
    const float largest = emu::largest_of(n, [=](Index c) { return row[c]; });
    for (Index c = 0; c < n; ++c) row[c] = emu::power_of_e(row[c] - largest);
    const float sum = emu::sum_of(n, [=](Index c) { return row[c]; });
    for (Index c = 0; c < n; ++c) row[c] /= sum;
  }
}

SHARDBOOK_VECTORS void softmax_backward(Tensor& dp, const Tensor& p) {
  const Index n = p.extent(1);
  for (Index i = 0; i < p.extent(0); ++i) {
    const float* probability = row_of(p, i);
    float* d = row_of(dp, i);
    const float sum = emu::sum_of(n, [=](Index c) { return probability[c] * d[c]; });
    for (Index c = 0; c < n; ++c) d[c] = probability[c] * (d[c] - sum);
  }
}

SHARDBOOK_VECTORS void add_numbers_to_rows(Tensor& t, std::span<const float> row) {
  for (Index i = 0; i < t.extent(0); ++i) {
    float* to = row_of(t, i);
    for (std::size_t c = 0; c < row.size(); ++c) to[c] += row[c];
  }
}

Later<std::vector<Index>> largest_columns(const Tensor& t, Index k) {
  const Index n = t.extent(1);
  std::vector<Index> columns;
  std::vector<bool> is_taken(static_cast<std::size_t>(n));
  for (Index i = 0; i < t.extent(0); ++i) {
    const float* row = row_of(t, i);
    is_taken.assign(is_taken.size(), false);
    for (Index r = 0; r < k; ++r) {
      Index best = -1;
      for (Index c = 0; c < n; ++c)
        if (!is_taken[static_cast<std::size_t>(c)] && (best < 0 || row[c] > row[best])) best = c;
      is_taken[static_cast<std::size_t>(best)] = true;
      columns.push_back(best);
    }
  }
  return columns;
}

Tensor largest_counts(const Tensor& t, Index k) {
  return runtime::counted(largest_columns(t, k), t.extent(1));
}

void take_columns(const Tensor& t, const Indices& columns, Index k, Tensor& taken) {
  for (Index i = 0; i < taken.size(); ++i)
    TensorMemory::data(taken)[i] = columns[i] == no_slot ? 0 : row_of(t, i / k)[columns[i]];
}

void put_columns(Tensor& zeros, const Tensor& values, const Indices& columns) {
  const Index k = values.extent(1);
  for (Index i = 0; i < values.size(); ++i) row_of(zeros, i / k)[columns[i]] = TensorMemory::data(values)[i];
}

void gather_rows(const Tensor& t, const Indices& at, Tensor& rows) {
  for (Index i = 0; i < rows.extent(0); ++i) std::copy_n(row_of(t, at[i]), t.extent(1), row_of(rows, i));
}

void scatter_rows(Tensor& into, const Tensor& rows, const Indices& at) {
  for (Index i = 0; i < rows.extent(0); ++i)
    std::copy_n(row_of(rows, i), rows.extent(1), row_of(into, at[i]));
}

SHARDBOOK_VECTORS void scale_rows_at(Tensor& rows, const Tensor& factors, const Indices& at) {
  const Index count = rows.extent(0), width = rows.extent(1);
  for (Index i = 0; i < count; ++i) {
    const float factor = TensorMemory::data(factors)[at[i]];
    float* row = row_of(rows, i);
    for (Index c = 0; c < width; ++c) row[c] *= factor;
  }
}

SHARDBOOK_VECTORS void combine_rows(const Tensor& rows, const Indices& slots, const Tensor* weights, Index k,
                                    Tensor& sums) {
  const Index m = sums.extent(0), d = sums.extent(1);
  std::ranges::fill(TensorMemory::span(sums), 0.0F);
  for (Index i = 0; i < m * k; ++i) {
    if (slots[i] == no_slot) continue;
    const float* from = row_of(rows, slots[i]);
    float* to = row_of(sums, i / k);
    const float weight = weights == nullptr ? 1 : TensorMemory::data(*weights)[i];
    for (Index c = 0; c < d; ++c) to[c] += weight * from[c];
  }
}

SHARDBOOK_VECTORS void dot_rows(const Tensor& t, const Tensor& rows, const Indices& slots, Index k,
                                Tensor& dots) {
  const Index count = dots.size(), width = t.extent(1);
  for (Index i = 0; i < count; ++i) {
    const bool has_slot = slots[i] != no_slot;
    const float *x = row_of(t, i / k), *y = row_of(rows, has_slot ? slots[i] : 0);
    TensorMemory::data(dots)[i] = emu::sum_of(has_slot ? width : 0, [=](Index c) { return x[c] * y[c]; });
  }
}

}  // namespace shard::kernels
