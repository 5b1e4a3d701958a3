/// Operations on rows: softmax, top-k, and gathering, scattering and combining rows.

#include <algorithm>
#include <cmath>

#include "emu/operations/host_memory.hpp"
#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/argument_checks.hpp"
#include "engine/device/runtime/operations/top_k.hpp"

namespace shard {

using emu::row_of;
using runtime::note_elementwise;

namespace {

/// Row i of the result is the sum of weight(i, r) · rows[slots(i, r)].
template <class Weight>
Tensor combined(const Tensor& rows, const Indices& slots, Shape shape, Index k, const Weight& weight) {
  const Index m = shape[0], d = shape[1];
  Tensor sums(std::move(shape));
  note_elementwise("combine_rows", k * sums.size());
  for (Index i = 0; i < m; ++i)
    for (Index r = 0; r < k; ++r) {
      const Index slot = slots[i * k + r];
      if (slot == no_slot) continue;
      const float* from = row_of(rows, slot);
      float* to = row_of(sums, i);
      const float w = weight(i * k + r);
      for (Index c = 0; c < d; ++c) to[c] += w * from[c];
    }
  return sums;
}

}  // namespace

Tensor softmax(Tensor&& z, SourceLine where) {
  const CallSite call(where);
  note_elementwise("softmax", z.size());
  require_matrix("softmax", z);
  const Index n = z.extent(1);
  for (Index i = 0; i < z.extent(0) && n > 0; ++i) {
    float* row = row_of(z, i);
    const float largest = *std::max_element(row, row + n);
    float sum = 0;
    for (Index c = 0; c < n; ++c) sum += row[c] = std::exp(row[c] - largest);
    for (Index c = 0; c < n; ++c) row[c] /= sum;
  }
  return std::move(z);
}

Tensor softmax_backward(Tensor&& dp, const Tensor& p, SourceLine where) {
  const CallSite call(where);
  note_elementwise("softmax_backward", p.size());
  require_matrix("softmax_backward", p);
  require_same_shape("softmax_backward", dp, p);
  const Index n = p.extent(1);
  for (Index i = 0; i < p.extent(0); ++i) {
    const float* probability = row_of(p, i);
    float* d = row_of(dp, i);
    float sum = 0;
    for (Index c = 0; c < n; ++c) sum += probability[c] * d[c];
    for (Index c = 0; c < n; ++c) d[c] = probability[c] * (d[c] - sum);
  }
  return std::move(dp);
}

Tensor add_to_rows(Tensor&& t, std::span<const float> row, SourceLine where) {
  const CallSite call(where);
  note_elementwise("add_to_rows", t.size());
  require_row(t, row);
  for (Index i = 0; i < t.extent(0); ++i) {
    float* to = row_of(t, i);
    for (std::size_t c = 0; c < row.size(); ++c) to[c] += row[c];
  }
  return std::move(t);
}

Later<std::vector<Index>> runtime::largest_columns(const Tensor& t, Index k) {
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

Tensor runtime::largest_counts(const Tensor& t, Index k) {
  return counted(largest_columns(t, k), t.extent(1));
}

Tensor take_columns(const Tensor& t, const Indices& columns, Index k, SourceLine where) {
  const CallSite call(where);
  Tensor taken = TensorMemory::make(shape_of_taken(t, columns, k));
  note_elementwise("take_columns", taken.size());
  for (Index i = 0; i < taken.size(); ++i) {
    const Index column = columns[i];
    TensorMemory::data(taken)[i] = column == no_slot ? 0 : row_of(t, i / k)[column];
  }
  return taken;
}

Tensor put_columns(const Tensor& values, const Indices& columns, Index n, SourceLine where) {
  const CallSite call(where);
  Tensor all(shape_of_put(values, columns, n));
  note_elementwise("put_columns", values.size());
  const Index k = values.extent(1);
  for (Index i = 0; i < values.size(); ++i) row_of(all, i / k)[columns[i]] = TensorMemory::data(values)[i];
  return all;
}

Tensor gather_rows(const Tensor& t, const Indices& at, SourceLine where) {
  const CallSite call(where);
  Tensor rows = TensorMemory::make(shape_of_gathered(t, at));
  note_elementwise("gather_rows", rows.size());
  for (Index i = 0; i < rows.extent(0); ++i) std::copy_n(row_of(t, at[i]), t.extent(1), row_of(rows, i));
  return rows;
}

void scatter_rows(const Tensor& rows, const Indices& at, Tensor& into, SourceLine where) {
  const CallSite call(where);
  note_elementwise("scatter_rows", rows.size());
  require_places(rows, at, into);
  for (Index i = 0; i < rows.extent(0); ++i)
    std::copy_n(row_of(rows, i), rows.extent(1), row_of(into, at[i]));
}

Tensor scale_rows(Tensor&& rows, const Tensor& factors, const Indices& at, SourceLine where) {
  const CallSite call(where);
  note_elementwise("scale_rows", rows.size());
  require_factors(rows, factors, at);
  const Index count = rows.extent(0), width = rows.extent(1);
  for (Index i = 0; i < count; ++i) {
    const float factor = TensorMemory::data(factors)[at[i]];
    float* row = row_of(rows, i);
    for (Index c = 0; c < width; ++c) row[c] *= factor;
  }
  return std::move(rows);
}

Tensor combine_rows(const Tensor& rows, const Indices& slots, const Tensor& weights, SourceLine where) {
  const CallSite call(where);
  Shape shape = shape_of_combined(rows, slots, weights);
  const float* weight = TensorMemory::data(weights);
  return combined(rows, slots, std::move(shape), weights.extent(1), [=](Index i) { return weight[i]; });
}

Tensor combine_rows(const Tensor& rows, const Indices& slots, Index k, SourceLine where) {
  const CallSite call(where);
  return combined(rows, slots, shape_of_combined(rows, slots, k), k, [](Index) { return 1.0F; });
}

Tensor dot_rows(const Tensor& t, const Tensor& rows, const Indices& slots, Index k, SourceLine where) {
  const CallSite call(where);
  Tensor dots(shape_of_dots(t, rows, slots, k));
  note_elementwise("dot_rows", k * t.size());
  const Index count = dots.size(), width = t.extent(1);
  for (Index i = 0; i < count; ++i) {
    const Index slot = slots[i];
    if (slot == no_slot) continue;
    const float* a = row_of(t, i / k);
    const float* b = row_of(rows, slot);
    float sum = 0;
    for (Index c = 0; c < width; ++c) sum += a[c] * b[c];
    TensorMemory::data(dots)[i] = sum;
  }
  return dots;
}

}  // namespace shard
