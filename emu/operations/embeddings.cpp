/// Embeddings of positions and of tokens, and labels.

#include <cmath>

#include "emu/operations/host_memory.hpp"
#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/layer_checks.hpp"

namespace shard {

using emu::row_of;
using runtime::note_elementwise;

namespace {

/// `direction` is 1, or -1 for the inverse.
Tensor rotated(const char* call, Tensor&& t, std::span<const Index> positions, Index head_dim, double base,
               double direction) {
  note_elementwise(call, t.size());
  const std::vector<double> angles = angles_of_a_head(call, t, positions, head_dim, base);
  const Index half = head_dim / 2, rows = t.extent(0), columns = t.extent(1);
  for (Index i = 0; i < rows; ++i) {
    float* row = row_of(t, i);
    for (Index j = 0; j < half; ++j) {
      const double angle = static_cast<double>(positions[static_cast<std::size_t>(i) % positions.size()]) *
                           angles[static_cast<std::size_t>(j)];
      const double cosine = std::cos(angle), sine = direction * std::sin(angle);
      for (Index head = 0; head < columns; head += head_dim) {
        float& a = row[head + j];
        float& b = row[head + j + half];
        const double x = a, y = b;
        a = static_cast<float>(x * cosine - y * sine);
        b = static_cast<float>(x * sine + y * cosine);
      }
    }
  }
  return std::move(t);
}

}  // namespace

Tensor rotate(Tensor&& t, std::span<const Index> positions, Index head_dim, double base, SourceLine where) {
  const CallSite call(where);
  return rotated("rotate", std::move(t), positions, head_dim, base, 1);
}

Tensor rotate_backward(Tensor&& dt, std::span<const Index> positions, Index head_dim, double base,
                       SourceLine where) {
  const CallSite call(where);
  return rotated("rotate_backward", std::move(dt), positions, head_dim, base, -1);
}

void scatter_add_rows(const Tensor& rows, const Indices& at, Tensor& into, SourceLine where) {
  const CallSite call(where);
  note_elementwise("scatter_add_rows", rows.size());
  require_addends(rows, at, into);
  const Index width = rows.extent(1);
  for (Index i = 0; i < at.size(); ++i) {
    if (at[i] == no_slot) continue;
    const float* from = row_of(rows, i);
    float* to = row_of(into, at[i]);
    for (Index c = 0; c < width; ++c) to[c] += from[c];
  }
}

Tensor losses_of_labels(const Tensor& largest, const Tensor& sums, const Tensor& of_labels,
                        const Indices& labels, ExponentialBase base, SourceLine where) {
  const CallSite call(where);
  note_elementwise("losses_of_labels", of_labels.size());
  require_losses(largest, sums, of_labels, labels);
  Tensor losses(of_labels.shape());
  for (Index i = 0; i < losses.size(); ++i) {
    if (labels[i] < 0) continue;
    const double sum = TensorMemory::data(sums)[i],
                 log = base == ExponentialBase::two ? std::log2(sum) : std::log(sum);
    TensorMemory::data(losses)[i] = static_cast<float>(double{TensorMemory::data(largest)[i]} + log -
                                                       double{TensorMemory::data(of_labels)[i]});
  }
  return losses;
}

Tensor subtract_at_columns(Tensor&& t, const Indices& columns, const Tensor& values, SourceLine where) {
  const CallSite call(where);
  note_elementwise("subtract_at_columns", values.size());
  require_subtrahends(t, columns, values);
  const Index k = values.extent(1);
  for (Index i = 0; i < values.size(); ++i) {
    const Index column = columns[i];
    if (column != no_slot) row_of(t, i / k)[column] -= TensorMemory::data(values)[i];
  }
  return std::move(t);
}

}  // namespace shard
