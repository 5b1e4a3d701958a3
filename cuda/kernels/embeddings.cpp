/// Embeddings of positions and of tokens, and labels.

#include "cuda/gpu.hpp"
#include "cuda/gpu_memory.hpp"
#include "cuda/kernels/launch.hpp"
#include "engine/device/layer_operations.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

namespace {

using cuda::DeviceCopy;
using cuda::gpu;
using cuda::Team;

/// Index i stands for a row and a pair of elements, which is rotated in all heads of the row.
struct Rotate {
  double direction;  ///< 1, or -1 for the inverse

  SHARDBOOK_KERNEL void operator()(Index i, float* t, const Index* positions, Index length,
                                   const double* angles, Index half, Index n) const {
    const Index row = i / half, j = i % half;
    const double angle = static_cast<double>(positions[row % length]) * angles[j];
    const double cosine = cos(angle), sine = direction * sin(angle);
    for (Index a = row * n + j; a < (row + 1) * n; a += 2 * half) {
      const double x = t[a], y = t[a + half];
      t[a] = static_cast<float>(x * cosine - y * sine);
      t[a + half] = static_cast<float>(x * sine + y * cosine);
    }
  }
};
/// Links each row to the next one with the same target.
struct LinkRows {
  SHARDBOOK_KERNEL void operator()(Team team, Index row, const Index* at, Index rows, Index* next,
                                   Index* is_first) const {
    Index after = row + 1 + team.lane, before = team.lane;
    while (after < rows && at[after] != at[row]) after += Team::size;
    while (before < row && at[before] != at[row]) before += Team::size;
    next[row] = -team.max(-after);
    is_first[row] = at[row] != no_slot && -team.max(-before) >= row ? 1 : 0;
  }
};
/// Index i stands for a row and a column. The first row with a target adds all others, so the order is the same always.
struct AddLinkedRows {
  SHARDBOOK_KERNEL void operator()(Index i, const float* t, const Index* at, Index rows, const Index* next,
                                   const Index* is_first, Index d, float* into) const {
    const Index first = i / d, column = i % d;
    if (is_first[first] == 0) return;
    float sum = into[at[first] * d + column];
    for (Index row = first; row < rows; row = next[row]) sum += t[row * d + column];
    into[at[first] * d + column] = sum;
  }
};
struct LossesOfLabels {
  bool is_to_base_two;

  SHARDBOOK_KERNEL void operator()(Index i, const float* largest, const float* sums, const float* of_labels,
                                   const Index* labels, float* losses) const {
    const double sum = sums[i], logarithm = is_to_base_two ? log2(sum) : log(sum);
    losses[i] = labels[i] < 0 ? 0 : static_cast<float>(largest[i] + logarithm - of_labels[i]);
  }
};
struct SubtractAtColumns {
  SHARDBOOK_KERNEL void operator()(Index i, float* t, Index n, const Index* columns, const float* values,
                                   Index k) const {
    if (columns[i] != no_slot) t[i / k * n + columns[i]] -= values[i];
  }
};

template <class Kernel, class... Args>
void launch(Kernel kernel, Index n, Args... args) {
  cuda::launch(kernel, n, gpu().computation(), args...);
}

}  // namespace

void rotate(Tensor& t, std::span<const Index> positions, const std::vector<double>& angles,
            double direction) {
  const DeviceCopy of_position_one(angles), at(positions);
  const Index half = std::ssize(angles);
  launch(Rotate{direction}, t.extent(0) * half, TensorMemory::data(t), at.data<Index>(),
         std::ssize(positions), of_position_one.data<double>(), half, t.extent(1));
}

void scatter_add_rows(Tensor& into, const Tensor& rows, const Indices& at) {
  const DeviceCopy targets(at);
  const Index count = rows.extent(0), bytes = count * static_cast<Index>(sizeof(Index));
  cuda::Workspace next(bytes), is_first(bytes);
  cuda::launch_rows(LinkRows(), count, gpu().computation(), targets.data<Index>(), count, next.data<Index>(),
                    is_first.data<Index>());
  launch(AddLinkedRows(), rows.size(), TensorMemory::data(rows), targets.data<Index>(), count,
         std::as_const(next).data<Index>(), std::as_const(is_first).data<Index>(), rows.extent(1),
         TensorMemory::data(into));
}

void losses_of_labels(const Tensor& largest, const Tensor& sums, const Tensor& of_labels,
                      const Indices& labels, ExponentialBase base, Tensor& losses) {
  const DeviceCopy of(labels);
  launch(LossesOfLabels{base == ExponentialBase::two}, losses.size(), TensorMemory::data(largest),
         TensorMemory::data(sums), TensorMemory::data(of_labels), of.data<Index>(),
         TensorMemory::data(losses));
}

void subtract_at_columns(Tensor& t, const Indices& columns, const Tensor& values) {
  const DeviceCopy at(columns);
  launch(SubtractAtColumns(), values.size(), TensorMemory::data(t), t.extent(1), at.data<Index>(),
         TensorMemory::data(values), values.extent(1));
}

}  // namespace shard::kernels
