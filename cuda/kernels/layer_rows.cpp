/// Sums, products and additions by rows and columns, and operations on attention's scores. A kernel's index is
/// an element, or a row, of which each thread of a team takes some elements.

#include <algorithm>
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
using cuda::Team;

constexpr float infinity = std::numeric_limits<float>::infinity();

struct RowSums {
  SHARDBOOK_KERNEL void operator()(Team team, Index row, const float* t, Index n, float* sums) const {
    float sum = 0;
    for (Index c = row * n + team.lane; c < (row + 1) * n; c += Team::size) sum += t[c];
    sums[row] = team.sum(sum);
  }
};
struct RowDots {
  SHARDBOOK_KERNEL void operator()(Team team, Index row, const float* a, const float* b, Index n,
                                   float* dots) const {
    float sum = 0;
    for (Index c = row * n + team.lane; c < (row + 1) * n; c += Team::size) sum += a[c] * b[c];
    dots[row] = team.sum(sum);
  }
};
struct RowMax {
  bool has_least;  ///< otherwise the least is -infinity, and `at_least` is not read

  SHARDBOOK_KERNEL void operator()(Team team, Index row, const float* t, const float* at_least, Index n,
                                   float* most) const {
    float largest = has_least ? at_least[row] : -infinity;
    for (Index c = row * n + team.lane; c < (row + 1) * n; c += Team::size)
      largest = t[c] > largest ? t[c] : largest;
    most[row] = team.max(largest);
  }
};
struct Fill {
  SHARDBOOK_KERNEL void operator()(Index i, float value, float* t) const { t[i] = value; }
};
/// Index i stands for a column of a group of rows, which has `group` elements.
struct ColumnSums {
  SHARDBOOK_KERNEL void operator()(Index i, const float* t, Index size, Index group, Index n,
                                   float* sums) const {
    const Index begin = i / n * group, end = begin + group < size ? begin + group : size;
    float sum = 0;
    for (Index at = begin + i % n; at < end; at += n) sum += t[at];
    sums[i] = sum;
  }
};
struct ColumnDots {
  SHARDBOOK_KERNEL void operator()(Index i, const float* a, const float* b, Index size, Index group, Index n,
                                   float* dots) const {
    const Index begin = i / n * group, end = begin + group < size ? begin + group : size;
    float sum = 0;
    for (Index at = begin + i % n; at < end; at += n) sum += a[at] * b[at];
    dots[i] = sum;
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
  SHARDBOOK_KERNEL void operator()(Index i, float* scores, Index first, Index last, Index rows,
                                   Index n) const {
    const Index from_row = i % n - i / n % rows;
    if (from_row < first || from_row > last) scores[i] = -infinity;
  }
};

struct SoftmaxBackward {
  SHARDBOOK_KERNEL void operator()(Index i, float* dp, const float* p, const float* dots, Index n) const {
    dp[i] = p[i] * (dp[i] - dots[i / n]);
  }
};
/// Index i stands for an element of the stack.
struct StackHeads {
  Index heads, rows, d;          ///< of the stack, for each sequence
  Index first, length, columns;  ///< the first row of the block, and the rows and columns of a sequence

  SHARDBOOK_KERNEL void operator()(Index i, const float* t, const Index* head, float* stack) const {
    const Index row = i / d % rows, number = i / d / rows;
    stack[i] = t[(first + number / heads * length + row) * columns + head[number % heads] * d + i % d];
  }
};
/// Index i stands for an element of `into`. The kernel adds all matrices of its head to it.
struct AddHeads {
  Index heads, rows, d;
  Index first, length, columns;

  SHARDBOOK_KERNEL void operator()(Index i, const float* stack, const Index* head, float* into) const {
    const Index column = i % columns, row = i / columns % rows, sequence = i / columns / rows;
    float& sum = into[(first + sequence * length + row) * columns + column];
    for (Index h = 0; h < heads; ++h)
      if (head[h] == column / d) sum += stack[((sequence * heads + h) * rows + row) * d + column % d];
  }
};

template <class Kernel, class... Args>
void launch(Kernel kernel, Index n, Args... args) {
  cuda::launch(kernel, n, gpu().computation(), args...);
}

/// Reduces each row of t to a number; to 0 if t has no elements.
template <class Kernel, class... Args>
Tensor folded_rows(Kernel kernel, const Tensor& t, Args... args) {
  if (t.size() == 0) return Tensor({t.extent(0)});
  Tensor result = TensorMemory::make({t.extent(0)});
  cuda::launch_rows(kernel, result.size(), gpu().computation(), args..., t.extent(1),
                    TensorMemory::data(result));
  return result;
}

/// Sums each column of t. Many rows are summed in groups first, so that there is work for all threads.
template <class Kernel, class... Args>
Tensor folded_columns(Kernel kernel, const Tensor& t, Args... args) {
  if (t.size() == 0) return Tensor({t.extent(1)});
  const Index n = t.extent(1), groups = std::clamp<Index>(t.extent(0) / 256, 1, 256);
  const Index rows = (t.extent(0) + groups - 1) / groups;  // of a group
  Tensor result = TensorMemory::make({n});
  if (groups == 1) {
    launch(kernel, n, args..., t.size(), rows * n, n, TensorMemory::data(result));
    return result;
  }
  cuda::Workspace sums(groups * n * static_cast<Index>(sizeof(float)));
  launch(kernel, groups * n, args..., t.size(), rows * n, n, sums.data<float>());
  launch(ColumnSums(), n, std::as_const(sums).data<float>(), groups * n, groups * n, n,
         TensorMemory::data(result));
  return result;
}

template <class Kernel>
Kernel in_block(const Tensor& t, const HeadBlock& block) {
  const Index length = t.extent(0) / block.all_sequences;
  return {static_cast<Index>(block.heads.size()),
          block.rows.size(),
          block.head_dim,
          block.sequences.begin * length + block.rows.begin,
          length,
          t.extent(1)};
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
  return folded_rows(RowSums(), t, TensorMemory::data(t));
}

Tensor row_dots(const Tensor& a, const Tensor& b, SourceLine where) {
  const CallSite call(where);
  note_elementwise("row_dots", a.size());
  require_same_matrices("row_dots", a, b);
  return folded_rows(RowDots(), a, TensorMemory::data(a), TensorMemory::data(b));
}

Tensor row_max(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  note_elementwise("row_max", t.size());
  require_matrix("row_max", t);
  if (t.extent(1) > 0) return folded_rows(RowMax{false}, t, TensorMemory::data(t), TensorMemory::data(t));
  Tensor most = TensorMemory::make({t.extent(0)});
  launch(Fill(), most.size(), -infinity, TensorMemory::data(most));
  return most;
}

Tensor row_max(const Tensor& t, const Tensor& at_least, SourceLine where) {
  const CallSite call(where);
  note_elementwise("row_max", t.size());
  require_one_for_each_row("row_max", t, at_least);
  if (t.size() == 0) return at_least.clone();
  return folded_rows(RowMax{true}, t, TensorMemory::data(t), TensorMemory::data(at_least));
}

Tensor column_sums(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  note_elementwise("column_sums", t.size());
  require_matrix("column_sums", t);
  return folded_columns(ColumnSums(), t, TensorMemory::data(t));
}

Tensor column_dots(const Tensor& a, const Tensor& b, SourceLine where) {
  const CallSite call(where);
  note_elementwise("column_dots", a.size());
  require_same_matrices("column_dots", a, b);
  return folded_columns(ColumnDots(), a, TensorMemory::data(a), TensorMemory::data(b));
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
  require_scores(scores);
  launch(KeepBand(), scores.size(), TensorMemory::data(scores), first, last, scores.extent(scores.rank() - 2),
         scores.shape().back());
  return std::move(scores);
}

Tensor softmax_backward(Tensor&& dp, const Tensor& p, const Tensor& dots, SourceLine where) {
  const CallSite call(where);
  note_elementwise("softmax_backward", p.size());
  require_same_matrices("softmax_backward", dp, p);
  require_one_for_each_row("softmax_backward", p, dots);
  launch(SoftmaxBackward(), p.size(), TensorMemory::data(dp), TensorMemory::data(p), TensorMemory::data(dots),
         p.extent(1));
  return std::move(dp);
}

Tensor stack_heads(const Tensor& t, const HeadBlock& block, SourceLine where) {
  const CallSite call(where);
  Tensor stack = TensorMemory::make(shape_of_heads("stack_heads", t, block));
  note_elementwise("stack_heads", stack.size());
  const DeviceCopy heads(block.heads);
  if (stack.size() > 0)
    launch(in_block<StackHeads>(t, block), stack.size(), TensorMemory::data(t), heads.data<Index>(),
           TensorMemory::data(stack));
  return stack;
}

void add_heads(const Tensor& stack, const HeadBlock& block, Tensor& into, SourceLine where) {
  const CallSite call(where);
  note_elementwise("add_heads", stack.size());
  require_shape("add_heads", shape_of_heads("add_heads", into, block), stack);
  const DeviceCopy heads(block.heads);
  if (stack.size() > 0)
    launch(in_block<AddHeads>(into, block), block.sequences.size() * block.rows.size() * into.extent(1),
           TensorMemory::data(stack), heads.data<Index>(), TensorMemory::data(into));
}

}  // namespace shard
