/// Sums, products and additions by rows and columns, and operations on attention's scores. A kernel's index is
/// an element, or a row, of which each thread of a team takes some elements.

#include <algorithm>
#include <limits>

#include "cuda/gpu.hpp"
#include "cuda/gpu_memory.hpp"
#include "cuda/kernels/launch.hpp"
#include "engine/device/layer_operations.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

namespace {

using cuda::DeviceCopy;
using cuda::gpu;
using cuda::readable;
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
  SHARDBOOK_KERNEL void operator()(Team team, Index row, const float* t, Index n, float* most) const {
    float largest = -infinity;
    for (Index c = row * n + team.lane; c < (row + 1) * n; c += Team::size)
      largest = t[c] > largest ? t[c] : largest;
    most[row] = team.max(largest);
  }
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
/// base^(x − largest). A power of two is 2^fraction times 2^integer: exact for integers, which exp2f need not
/// be.
SHARDBOOK_KERNEL float power(float x, float largest, ExponentialBase base) {
  if (x == -infinity) return 0;
  x -= largest;
  if (base == ExponentialBase::e) return expf(x);
  const float integer = fminf(fmaxf(rintf(x), -300.0F), 300.0F);
  return ldexpf(exp2f(x - integer), static_cast<int>(integer));
}
struct Exponentials {
  ExponentialBase base;

  SHARDBOOK_KERNEL void operator()(Index i, float* z, const float* largest, Index n) const {
    z[i] = power(z[i], largest[i / n], base);
  }
};
/// A row's scores, of which some have powers.
struct ScoresOfRow {
  ScoreRule rule;
  float* scores;
  Index begin, end;

  SHARDBOOK_KERNEL ScoresOfRow(ScoreRule how, float* all, Index row, Index rows, Index n)
      : rule(how), scores(all + row * n), begin(row % rows + how.first), end(row % rows + how.last + 1) {}
  SHARDBOOK_KERNEL bool has_power(Index c) const { return begin <= c && c < end; }
  /// Rounded, and not fused with what is subtracted: the largest exponent's difference to itself must be 0.
  SHARDBOOK_KERNEL float exponent(Index c) const {
    return has_power(c) ? __fmul_rn(rule.scale, scores[c]) : -infinity;
  }
};
struct PowersOfScores {
  ScoreRule rule;
  bool has_least;  ///< otherwise the least is -infinity, and `at_least` is not read

  SHARDBOOK_KERNEL void operator()(Team team, Index row, float* all, const float* at_least, Index rows,
                                   Index n, float* largest, float* sums) const {
    const ScoresOfRow of(rule, all, row, rows, n);
    float most = has_least ? at_least[row] : -infinity, sum = 0;
    for (Index c = team.lane; c < n; c += Team::size) most = of.exponent(c) > most ? of.exponent(c) : most;
    most = team.max(most);
    for (Index c = team.lane; c < n; c += Team::size)
      sum += of.scores[c] = power(of.exponent(c), most, rule.base);
    largest[row] = most;
    sums[row] = team.sum(sum);
  }
};
struct SoftmaxOfScores {
  ScoreRule rule;

  SHARDBOOK_KERNEL void operator()(Team team, Index row, float* all, const float* largest, const float* sums,
                                   Index rows, Index n) const {
    const ScoresOfRow of(rule, all, row, rows, n);
    for (Index c = team.lane; c < n; c += Team::size)
      of.scores[c] = sums[row] == 0 ? 0 : power(of.exponent(c), largest[row], rule.base) / sums[row];
  }
};
struct SoftmaxOfScoresBackward {
  float factor;

  SHARDBOOK_KERNEL void operator()(Team team, Index row, float* dp, const float* p, const float* dots,
                                   Index n) const {
    for (Index i = row * n + team.lane; i < (row + 1) * n; i += Team::size)
      dp[i] = p[i] * (dp[i] - dots[row]) * factor;
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
template <class Kernel, class... Args>
void launch_rows(Kernel kernel, Index rows, Args... args) {
  cuda::launch_rows(kernel, rows, gpu().computation(), args...);
}

/// Reduces each row of t to a number.
template <class Kernel, class... Args>
void fold_rows(Kernel kernel, const Tensor& t, Tensor& result, Args... args) {
  launch_rows(kernel, result.size(), args..., t.extent(1), TensorMemory::data(result));
}

/// Sums each column of t. Many rows are summed in groups first, so that there is work for all threads.
template <class Kernel, class... Args>
void fold_columns(Kernel kernel, const Tensor& t, Tensor& result, Args... args) {
  const Index n = t.extent(1), groups = std::clamp<Index>(t.extent(0) / 256, 1, 256);
  const Index rows = (t.extent(0) + groups - 1) / groups;  // of a group
  if (groups == 1) return launch(kernel, n, args..., t.size(), rows * n, n, TensorMemory::data(result));
  cuda::Workspace sums(groups * n * static_cast<Index>(sizeof(float)));
  launch(kernel, groups * n, args..., t.size(), rows * n, n, sums.data<float>());
  launch(ColumnSums(), n, std::as_const(sums).data<float>(), groups * n, groups * n, n,
         TensorMemory::data(result));
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

/// A function of each element and of its row's, or its column's, number.
template <class Kernel>
void with_numbers(Kernel kernel, Tensor& t, const Tensor& numbers) {
  launch(kernel, t.size(), TensorMemory::data(t), TensorMemory::data(numbers), t.extent(1));
}

}  // namespace

void row_sums(const Tensor& t, Tensor& sums) {
  fold_rows(RowSums(), t, sums, readable(t, sums));
}

void row_dots(const Tensor& a, const Tensor& b, Tensor& dots) {
  fold_rows(RowDots(), a, dots, readable(a, dots), readable(b, dots));
}

void row_max(const Tensor& t, Tensor& most) {
  fold_rows(RowMax(), t, most, readable(t, most));
}

void column_sums(const Tensor& t, Tensor& sums) {
  fold_columns(ColumnSums(), t, sums, readable(t, sums));
}

void column_dots(const Tensor& a, const Tensor& b, Tensor& dots) {
  fold_columns(ColumnDots(), a, dots, readable(a, dots), readable(b, dots));
}

void scale_rows(Tensor& t, const Tensor& factors) {
  with_numbers(ScaleRows(), t, factors);
}

void scale_columns(Tensor& t, const Tensor& factors) {
  with_numbers(ScaleColumns(), t, factors);
}

void divide_rows(Tensor& t, const Tensor& divisors) {
  with_numbers(DivideRows(), t, divisors);
}

void add_to_rows(Tensor& t, const Tensor& row) {
  with_numbers(AddRow(), t, row);
}

void add_to_columns(Tensor& t, const Tensor& column) {
  with_numbers(AddColumn(), t, column);
}

void exponentials(Tensor& z, const Tensor& largest, ExponentialBase base) {
  with_numbers(Exponentials{base}, z, largest);
}

void powers_of_scores(Tensor& scores, const ScoreRule& rule, const Tensor* at_least, Tensor& largest,
                      Tensor& sums) {
  float* all = TensorMemory::data(scores.size() > 0 ? scores : sums);
  launch_rows(PowersOfScores{rule, at_least != nullptr}, largest.size(), all,
              TensorMemory::data(std::as_const(at_least == nullptr ? largest : *at_least)), scores.extent(1),
              scores.extent(2), TensorMemory::data(largest), TensorMemory::data(sums));
}

void softmax_of_scores(Tensor& scores, const ScoreRule& rule, const Tensor& largest, const Tensor& sums) {
  launch_rows(SoftmaxOfScores{rule}, sums.size(), TensorMemory::data(scores), TensorMemory::data(largest),
              TensorMemory::data(sums), scores.extent(1), scores.extent(2));
}

void softmax_of_scores_backward(Tensor& dp, const Tensor& p, const Tensor& dots, float factor) {
  launch_rows(SoftmaxOfScoresBackward{factor}, dots.size(), TensorMemory::data(dp), TensorMemory::data(p),
              TensorMemory::data(dots), p.extent(2));
}

void stack_heads(const Tensor& t, const HeadBlock& block, Tensor& stack) {
  const DeviceCopy heads(block.heads);
  launch(in_block<StackHeads>(t, block), stack.size(), TensorMemory::data(t), heads.data<Index>(),
         TensorMemory::data(stack));
}

void add_heads(Tensor& into, const HeadBlock& block, const Tensor& stack) {
  const DeviceCopy heads(block.heads);
  launch(in_block<AddHeads>(into, block), block.sequences.size() * block.rows.size() * into.extent(1),
         TensorMemory::data(stack), heads.data<Index>(), TensorMemory::data(into));
}

}  // namespace shard::kernels
