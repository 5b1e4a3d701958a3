/// Embeddings of positions and of tokens, and labels.

#include <cmath>

#include "emu/operations/host_memory.hpp"
#include "emu/operations/vectors.hpp"
#include "engine/device/layer_operations.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

using emu::row_of;

SHARDBOOK_VECTORS void rotate(Tensor& t, std::span<const Index> positions, const std::vector<double>& angles,
                              double direction) {
  const Index rows = t.extent(0), columns = t.extent(1), of_sequence = std::ssize(positions);
  const std::size_t half = angles.size();
  std::vector<double> cosines(half), sines(half);
  for (Index p = 0; p < of_sequence; ++p) {
    for (std::size_t j = 0; j < half; ++j) {
      const double angle = static_cast<double>(positions[static_cast<std::size_t>(p)]) * angles[j];
      cosines[j] = std::cos(angle), sines[j] = direction * std::sin(angle);
    }
    for (Index i = p; i < rows; i += of_sequence)  // the rows at this position
      for (float *a = row_of(t, i), *end = a + columns; a < end; a += 2 * half)
        for (std::size_t j = 0; j < half; ++j) {
          const double x = a[j], y = a[j + half];
          a[j] = static_cast<float>(x * cosines[j] - y * sines[j]);
          a[j + half] = static_cast<float>(x * sines[j] + y * cosines[j]);
        }
  }
}

SHARDBOOK_VECTORS void scatter_add_rows(Tensor& into, const Tensor& rows, const Indices& at) {
  const Index width = rows.extent(1);
  for (Index i = 0; i < at.size(); ++i) {
    if (at[i] == no_slot) continue;
    const float* from = row_of(rows, i);
    float* to = row_of(into, at[i]);
    for (Index c = 0; c < width; ++c) to[c] += from[c];
  }
}

void losses_of_labels(const Tensor& largest, const Tensor& sums, const Tensor& of_labels,
                      const Indices& labels, ExponentialBase base, Tensor& losses) {
  for (Index i = 0; i < losses.size(); ++i) {
    const double sum = TensorMemory::data(sums)[i],
                 log = base == ExponentialBase::two ? std::log2(sum) : std::log(sum);
    const double loss =
        double{TensorMemory::data(largest)[i]} + log - double{TensorMemory::data(of_labels)[i]};
    TensorMemory::data(losses)[i] = labels[i] < 0 ? 0 : static_cast<float>(loss);
  }
}

void subtract_at_columns(Tensor& t, const Indices& columns, const Tensor& values) {
  const Index k = values.extent(1);
  for (Index i = 0; i < values.size(); ++i)
    if (columns[i] != no_slot) row_of(t, i / k)[columns[i]] -= TensorMemory::data(values)[i];
}

}  // namespace shard::kernels
