/// Embeddings of positions and of tokens, and labels.

#include <cmath>

#include "emu/operations/host_memory.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

using emu::row_of;

void rotate(Tensor& t, std::span<const Index> positions, const std::vector<double>& angles,
            double direction) {
  const Index half = std::ssize(angles), rows = t.extent(0), columns = t.extent(1);
  for (Index i = 0; i < rows; ++i) {
    float* row = row_of(t, i);
    const auto position = static_cast<double>(positions[static_cast<std::size_t>(i) % positions.size()]);
    for (Index j = 0; j < half; ++j) {
      const double angle = position * angles[static_cast<std::size_t>(j)];
      const double cosine = std::cos(angle), sine = direction * std::sin(angle);
      for (Index head = 0; head < columns; head += 2 * half) {
        float& a = row[head + j];
        float& b = row[head + j + half];
        const double x = a, y = b;
        a = static_cast<float>(x * cosine - y * sine);
        b = static_cast<float>(x * sine + y * cosine);
      }
    }
  }
}

void scatter_add_rows(Tensor& into, const Tensor& rows, const Indices& at) {
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
