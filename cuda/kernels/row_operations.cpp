/// Operations on rows: softmax, top-k, and gathering, scattering and combining rows. A kernel's index is a row,
/// or an element of the result.

#include "cuda/gpu.hpp"
#include "cuda/gpu_memory.hpp"
#include "cuda/kernels/launch.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

namespace {

using cuda::DeviceCopy;
using cuda::gpu;
using cuda::readable;
using cuda::Team;

struct Softmax {
  SHARDBOOK_KERNEL void operator()(Team team, Index row, float* z, Index n) const {
    float* p = z + row * n;
    float largest = p[0];
    for (Index c = team.lane; c < n; c += Team::size) largest = p[c] > largest ? p[c] : largest;
    largest = team.max(largest);
    float sum = 0;
    for (Index c = team.lane; c < n; c += Team::size) sum += p[c] = expf(p[c] - largest);
    sum = team.sum(sum);
    for (Index c = team.lane; c < n; c += Team::size) p[c] /= sum;
  }
};
struct SoftmaxBackward {
  SHARDBOOK_KERNEL void operator()(Team team, Index row, float* dp, const float* p, Index n) const {
    const Index begin = row * n + team.lane, end = (row + 1) * n;
    float sum = 0;
    for (Index c = begin; c < end; c += Team::size) sum += p[c] * dp[c];
    sum = team.sum(sum);
    for (Index c = begin; c < end; c += Team::size) dp[c] = p[c] * (dp[c] - sum);
  }
};
struct AddToRows {
  SHARDBOOK_KERNEL void operator()(Index i, float* t, const float* row, Index n) const { t[i] += row[i % n]; }
};
struct TopK {
  SHARDBOOK_KERNEL void operator()(Index row, const float* t, Index n, Index k, Index* columns) const {
    Index* mine = columns + row * k;
    for (Index r = 0; r < k; ++r) {
      Index best = -1;
      for (Index c = 0; c < n; ++c)
        if (!is_among(mine, r, c) && (best < 0 || t[row * n + c] > t[row * n + best])) best = c;
      mine[r] = best;
    }
  }
  SHARDBOOK_KERNEL static bool is_among(const Index* taken, Index count, Index column) {
    for (Index r = 0; r < count; ++r)
      if (taken[r] == column) return true;
    return false;
  }
};
struct CountColumns {
  SHARDBOOK_KERNEL void operator()(Team team, Index column, const Index* columns, Index all,
                                   float* counts) const {
    Index count = 0;
    for (Index i = team.lane; i < all; i += Team::size) count += columns[i] == column ? 1 : 0;
    counts[column] = static_cast<float>(team.sum(count));
  }
};
struct TakeColumns {
  SHARDBOOK_KERNEL void operator()(Index i, const float* t, Index n, const Index* columns, Index k,
                                   float* taken) const {
    taken[i] = columns[i] == no_slot ? 0 : t[i / k * n + columns[i]];
  }
};
struct PutColumns {
  SHARDBOOK_KERNEL void operator()(Index i, const float* values, Index k, const Index* columns, float* all,
                                   Index n) const {
    all[i / k * n + columns[i]] = values[i];
  }
};
struct GatherRows {
  SHARDBOOK_KERNEL void operator()(Index i, const float* t, const Index* at, Index d, float* rows) const {
    rows[i] = t[at[i / d] * d + i % d];
  }
};
struct ScatterRows {
  SHARDBOOK_KERNEL void operator()(Index i, const float* rows, const Index* at, Index d, float* into) const {
    into[at[i / d] * d + i % d] = rows[i];
  }
};
struct ScaleRows {
  SHARDBOOK_KERNEL void operator()(Index i, float* rows, const float* factors, const Index* at,
                                   Index d) const {
    rows[i] *= factors[at[i / d]];
  }
};
struct CombineRows {
  bool has_weights;  ///< otherwise all weights are 1

  SHARDBOOK_KERNEL void operator()(Index i, const float* rows, const Index* slots, const float* weights,
                                   Index k, Index d, float* sums) const {
    float sum = 0;
    for (Index r = i / d * k; r < (i / d + 1) * k; ++r)
      if (slots[r] != no_slot) sum += (has_weights ? weights[r] : 1.0F) * rows[slots[r] * d + i % d];
    sums[i] = sum;
  }
};
struct DotRows {
  SHARDBOOK_KERNEL void operator()(Index i, const float* t, const float* rows, const Index* slots, Index k,
                                   Index d, float* dots) const {
    float sum = 0;
    if (slots[i] != no_slot)
      for (Index c = 0; c < d; ++c) sum += t[i / k * d + c] * rows[slots[i] * d + c];
    dots[i] = sum;
  }
};

template <class Kernel, class... Args>
void launch(Kernel kernel, Index n, Args... args) {
  cuda::launch(kernel, n, gpu().computation(), args...);
}

/// The columns of each row's k largest elements, (m k).
std::unique_ptr<cuda::Workspace> columns_found(const Tensor& t, Index k) {
  auto found = std::make_unique<cuda::Workspace>(t.extent(0) * k * static_cast<Index>(sizeof(Index)));
  launch(TopK(), t.extent(0), TensorMemory::data(t), t.extent(1), k, found->data<Index>());
  return found;
}

}  // namespace

void softmax(Tensor& z) {
  cuda::launch_rows(Softmax(), z.extent(0), gpu().computation(), TensorMemory::data(z), z.extent(1));
}

void softmax_backward(Tensor& dp, const Tensor& p) {
  cuda::launch_rows(SoftmaxBackward(), p.extent(0), gpu().computation(), TensorMemory::data(dp),
                    TensorMemory::data(p), p.extent(1));
}

void add_numbers_to_rows(Tensor& t, std::span<const float> row) {
  const DeviceCopy addends(row);
  launch(AddToRows(), t.size(), TensorMemory::data(t), addends.data<float>(), t.extent(1));
}

Later<std::vector<Index>> largest_columns(const Tensor& t, Index k) {
  const Index count = t.extent(0) * k;
  if (count == 0) return std::vector<Index>();
  const std::unique_ptr<cuda::Workspace> found = columns_found(t, k);
  auto copy = std::make_shared<cuda::HostCopy>(found->data<Index>(), count * sizeof(Index));
  return Later<std::vector<Index>>([copy] { return copy->numbers<Index>(); });
}

Tensor largest_counts(const Tensor& t, Index k) {
  if (t.size() == 0) return Tensor({t.extent(1)});
  Tensor counts = TensorMemory::make({t.extent(1)});
  cuda::launch_rows(CountColumns(), counts.size(), gpu().computation(),
                    std::as_const(*columns_found(t, k)).data<Index>(), t.extent(0) * k,
                    TensorMemory::data(counts));
  return counts;
}

void take_columns(const Tensor& t, const Indices& columns, Index k, Tensor& taken) {
  const DeviceCopy at(columns);
  launch(TakeColumns(), taken.size(), readable(t, taken), t.extent(1), at.data<Index>(), k,
         TensorMemory::data(taken));
}

void put_columns(Tensor& zeros, const Tensor& values, const Indices& columns) {
  const DeviceCopy at(columns);
  launch(PutColumns(), values.size(), TensorMemory::data(values), values.extent(1), at.data<Index>(),
         TensorMemory::data(zeros), zeros.extent(1));
}

void gather_rows(const Tensor& t, const Indices& at, Tensor& rows) {
  const DeviceCopy from(at);
  launch(GatherRows(), rows.size(), TensorMemory::data(t), from.data<Index>(), t.extent(1),
         TensorMemory::data(rows));
}

void scatter_rows(Tensor& into, const Tensor& rows, const Indices& at) {
  const DeviceCopy to(at);
  launch(ScatterRows(), rows.size(), TensorMemory::data(rows), to.data<Index>(), rows.extent(1),
         TensorMemory::data(into));
}

void scale_rows_at(Tensor& rows, const Tensor& factors, const Indices& at) {
  const DeviceCopy which(at);
  launch(ScaleRows(), rows.size(), TensorMemory::data(rows), TensorMemory::data(factors), which.data<Index>(),
         rows.extent(1));
}

void combine_rows(const Tensor& rows, const Indices& slots, const Tensor* weights, Index k, Tensor& sums) {
  const DeviceCopy at(slots);
  const float* some = readable(rows, sums);
  launch(CombineRows{weights != nullptr}, sums.size(), some, at.data<Index>(),
         weights == nullptr ? some : TensorMemory::data(*weights), k, sums.extent(1),
         TensorMemory::data(sums));
}

void dot_rows(const Tensor& t, const Tensor& rows, const Indices& slots, Index k, Tensor& dots) {
  const DeviceCopy at(slots);
  launch(DotRows(), dots.size(), readable(t, dots), readable(rows, dots), at.data<Index>(), k, t.extent(1),
         TensorMemory::data(dots));
}

}  // namespace shard::kernels
