/// Sums, products and additions by rows and columns, and operations on attention's scores. A kernel's index is
/// a row, a column, or an element.

#include <limits>

#include "cuda/gpu.hpp"
#include "cuda/gpu_memory.hpp"
#include "cuda/kernels/launch.hpp"
#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/layer_checks.hpp"

namespace shard {

using runtime::note_elementwise;

namespace {

using cuda::DeviceCopy;
using cuda::gpu;

constexpr float infinity = std::numeric_limits<float>::infinity();

struct RowSums {
  SHARDBOOK_KERNEL void operator()(Index row, const float* t, Index n, float* sums) const {
    float sum = 0;
    for (Index c = row * n; c < (row + 1) * n; ++c) sum += t[c];
    sums[row] = sum;
  }
};
struct RowDots {
  SHARDBOOK_KERNEL void operator()(Index row, const float* a, const float* b, Index n, float* dots) const {
    float sum = 0;
    for (Index c = row * n; c < (row + 1) * n; ++c) sum += a[c] * b[c];
    dots[row] = sum;
  }
};
struct RowMax {
  SHARDBOOK_KERNEL void operator()(Index row, const float* t, Index n, float* most) const {
    float largest = -infinity;
    for (Index c = row * n; c < (row + 1) * n; ++c) largest = t[c] > largest ? t[c] : largest;
    most[row] = largest;
  }
};
struct ColumnSums {
  SHARDBOOK_KERNEL void operator()(Index column, const float* t, Index size, Index n, float* sums) const {
    float sum = 0;
    for (Index i = column; i < size; i += n) sum += t[i];
    sums[column] = sum;
  }
};
struct ColumnDots {
  SHARDBOOK_KERNEL void operator()(Index column, const float* a, const float* b, Index size, Index n,
                                   float* dots) const {
    float sum = 0;
    for (Index i = column; i < size; i += n) sum += a[i] * b[i];
    dots[column] = sum;
  }
};
struct ScaleRows {
  SHARDBOOK_KERNEL void operator()(Index i, float* t, const float* factors, Index n) const {
    t[i] *= factors[i / n];
  }
};
struct ScaleColumns {
  SHARDBOOK_KERNEL void operator()(Index i, float* t, const float* factors, Index n) const {
    t[i] *= factors[i % n];
  }
};
struct DivideRows {
  SHARDBOOK_KERNEL void operator()(Index i, float* t, const float* divisors, Index n) const {
    t[i] = divisors[i / n] == 0 ? 0 : t[i] / divisors[i / n];
  }
};
struct AddRow {
  SHARDBOOK_KERNEL void operator()(Index i, float* t, const float* row, Index n) const { t[i] += row[i % n]; }
};
struct AddColumn {
  SHARDBOOK_KERNEL void operator()(Index i, float* t, const float* column, Index n) const {
    t[i] += column[i / n];
  }
};
struct ExponentialsToBaseE {
  SHARDBOOK_KERNEL void operator()(Index i, float* z, const float* largest, Index n) const {
    z[i] = z[i] == -infinity ? 0 : expf(z[i] - largest[i / n]);
  }
};
/// 2^x as 2^fraction times 2^integer: exact for integers, which exp2f need not be.
struct ExponentialsToBaseTwo {
  SHARDBOOK_KERNEL void operator()(Index i, float* z, const float* largest, Index n) const {
    const float x = z[i] - largest[i / n];
    const float integer = fminf(fmaxf(rintf(x), -300.0F), 300.0F);
    z[i] = z[i] == -infinity ? 0 : ldexpf(exp2f(x - integer), static_cast<int>(integer));
  }
};
struct KeepBand {
  SHARDBOOK_KERNEL void operator()(Index i, float* scores, Index first, Index last, Index n) const {
    const Index from_row = i % n - i / n;
    if (from_row < first || from_row > last) scores[i] = -infinity;
  }
};

template <class Kernel, class... Args>
void launch(Kernel kernel, Index n, Args... args) {
  cuda::launch(kernel, n, gpu().computation(), args...);
}

/// Reduces each row or column of t to a number; to 0 if t has no elements.
template <class Kernel, class... Args>
Tensor folded(Kernel kernel, const Tensor& t, int axis, Args... args) {
  if (t.size() == 0) return Tensor({t.extent(axis)});
  Tensor result = TensorMemory::make({t.extent(axis)});
  launch(kernel, result.size(), args..., t.extent(1), TensorMemory::data(result));
  return result;
}

template <class Kernel>
Tensor with_rows(const char* call, Tensor&& t, const Tensor& numbers, Kernel kernel) {
  note_elementwise(call, t.size());
  require_one_for_each_row(call, t, numbers);
  launch(kernel, t.size(), TensorMemory::data(t), TensorMemory::data(numbers), t.extent(1));
  return std::move(t);
}

template <class Kernel>
Tensor with_columns(const char* call, Tensor&& t, const Tensor& numbers, Kernel kernel) {
  note_elementwise(call, t.size());
  require_one_for_each_column(call, t, numbers);
  launch(kernel, t.size(), TensorMemory::data(t), TensorMemory::data(numbers), t.extent(1));
  return std::move(t);
}

}  // namespace

Tensor row_sums(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  note_elementwise("row_sums", t.size());
  require_matrix("row_sums", t);
  return folded(RowSums(), t, 0, TensorMemory::data(t));
}

Tensor row_dots(const Tensor& a, const Tensor& b, SourceLine where) {
  const CallSite call(where);
  note_elementwise("row_dots", a.size());
  require_same_matrices("row_dots", a, b);
  return folded(RowDots(), a, 0, TensorMemory::data(a), TensorMemory::data(b));
}

Tensor row_max(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  note_elementwise("row_max", t.size());
  require_matrix("row_max", t);
  if (t.extent(1) > 0) return folded(RowMax(), t, 0, TensorMemory::data(t));
  return Tensor::from_host({t.extent(0)},
                           std::vector<float>(static_cast<std::size_t>(t.extent(0)), -infinity));
}

Tensor column_sums(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  note_elementwise("column_sums", t.size());
  require_matrix("column_sums", t);
  return folded(ColumnSums(), t, 1, TensorMemory::data(t), t.size());
}

Tensor column_dots(const Tensor& a, const Tensor& b, SourceLine where) {
  const CallSite call(where);
  note_elementwise("column_dots", a.size());
  require_same_matrices("column_dots", a, b);
  return folded(ColumnDots(), a, 1, TensorMemory::data(a), TensorMemory::data(b), a.size());
}

Tensor scale_rows(Tensor&& t, const Tensor& factors, SourceLine where) {
  const CallSite call(where);
  return with_rows("scale_rows", std::move(t), factors, ScaleRows());
}

Tensor scale_columns(Tensor&& t, const Tensor& factors, SourceLine where) {
  const CallSite call(where);
  return with_columns("scale_columns", std::move(t), factors, ScaleColumns());
}

Tensor divide_rows(Tensor&& t, const Tensor& divisors, SourceLine where) {
  const CallSite call(where);
  return with_rows("divide_rows", std::move(t), divisors, DivideRows());
}

Tensor add_to_rows(Tensor&& t, const Tensor& row, SourceLine where) {
  const CallSite call(where);
  return with_columns("add_to_rows", std::move(t), row, AddRow());
}

Tensor add_to_columns(Tensor&& t, const Tensor& column, SourceLine where) {
  const CallSite call(where);
  return with_rows("add_to_columns", std::move(t), column, AddColumn());
}

Tensor exponentials(Tensor&& z, const Tensor& largest, ExponentialBase base, SourceLine where) {
  const CallSite call(where);
  if (base == ExponentialBase::two)
    return with_rows("exponentials", std::move(z), largest, ExponentialsToBaseTwo());
  return with_rows("exponentials", std::move(z), largest, ExponentialsToBaseE());
}

Tensor keep_band(Tensor&& scores, Index first, Index last, SourceLine where) {
  const CallSite call(where);
  note_elementwise("keep_band", scores.size());
  require_matrix("keep_band", scores);
  launch(KeepBand(), scores.size(), TensorMemory::data(scores), first, last, scores.extent(1));
  return std::move(scores);
}

}  // namespace shard
