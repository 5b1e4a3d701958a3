/// Sums, products and additions by rows and columns, and operations on attention's scores.

#include <algorithm>

#include "emu/operations/host_memory.hpp"
#include "emu/operations/vectors.hpp"
#include "engine/device/layer_operations.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

using emu::row_of;

namespace {

/// result[i] = f(n, row i of a, row i of b), where rows have n elements.
template <class F>
void reduce_rows(const Tensor& a, const Tensor& b, Tensor& result, const F& f) {
  const Index rows = a.extent(0), columns = a.extent(1);
  for (Index i = 0; i < rows; ++i) TensorMemory::data(result)[i] = f(columns, row_of(a, i), row_of(b, i));
}

/// Folds each column: result[c] = f(result[c], a(i, c), b(i, c)), in ascending i, from 0 on.
template <class F>
void fold_columns(const Tensor& a, const Tensor& b, Tensor& result, const F& f) {
  const Index rows = a.extent(0), columns = a.extent(1);
  std::ranges::fill(TensorMemory::span(result), 0.0F);
  float* values = TensorMemory::data(result);
  for (Index i = 0; i < rows; ++i) {
    const float* left = row_of(a, i);
    const float* right = row_of(b, i);
    for (Index c = 0; c < columns; ++c) values[c] = f(values[c], left[c], right[c]);
  }
}

float plus(float sum, float x, float) {
  return sum + x;
}
float plus_product(float sum, float x, float y) {
  return sum + x * y;
}

/// t(i, c) = f(t(i, c), numbers[i]).
template <class F>
void with_rows(Tensor& t, const Tensor& numbers, const F& f) {
  const Index rows = t.extent(0), columns = t.extent(1);
  for (Index i = 0; i < rows; ++i) {
    const float number = TensorMemory::data(numbers)[i];
    float* row = row_of(t, i);
    for (Index c = 0; c < columns; ++c) row[c] = f(row[c], number);
  }
}

/// t(i, c) = f(t(i, c), numbers[c]).
template <class F>
void with_columns(Tensor& t, const Tensor& numbers, const F& f) {
  const float* number = TensorMemory::data(numbers);
  const Index rows = t.extent(0), columns = t.extent(1);
  for (Index i = 0; i < rows; ++i) {
    float* row = row_of(t, i);
    for (Index c = 0; c < columns; ++c) row[c] = f(row[c], number[c]);
  }
}

/// Calls f(number of the stack, number of t) for each number of a block of t: run by run of rows, which the cache
/// keeps for all heads.
template <class Stack, class T, class F>
void for_each_in_heads(Stack& stack, T& t, const HeadBlock& block, const F& f) {
  constexpr Index run = 64;
  const auto& [all, sequences, rows, d, heads] = block;
  const Index width = t.extent(1), of_sequence = t.extent(0) / all;
  auto* of_stack = TensorMemory::data(stack);
  for (Index s = sequences.begin; s < sequences.end; ++s, of_stack += std::ssize(heads) * rows.size() * d)
    for (Index first = rows.begin; first < rows.end; first += run)
      for (std::size_t h = 0; h < heads.size(); ++h) {
        auto* x = of_stack + (static_cast<Index>(h) * rows.size() + first - rows.begin) * d;
        auto* y = TensorMemory::data(t) + (s * of_sequence + first) * width + heads[h] * d;
        const Index count = std::min(run, rows.end - first);
        if (d == 1)  // without a loop for each number
          for (Index row = 0; row < count; ++row) f(x[row], y[row * width]);
        else
          for (Index row = 0; row < count; ++row, x += d, y += width)
            for (Index c = 0; c < d; ++c) f(x[c], y[c]);
      }
}

/// base^(x − largest).
float power(float x, float largest, const emu::Power& of_base) {
  return x == -emu::infinity ? 0 : of_base(x - largest);
}
const emu::Power& powers_of(ExponentialBase base) {
  return base == ExponentialBase::e ? emu::power_of_e : emu::power_of_two;
}

/// Calls f(i, row, begin, end) for each row of a stack of scores, whose elements from begin to end have
/// powers.
template <class F>
void for_each_row(Tensor& scores, const ScoreRule& rule, const F& f) {
  const Index rows = scores.extent(0) * scores.extent(1), n = scores.extent(2);
  for (Index i = 0; i < rows; ++i) {
    const Index query = i % scores.extent(1), begin = std::clamp<Index>(query + rule.first, 0, n);
    f(i, TensorMemory::data(scores) + i * n, begin, std::clamp<Index>(query + rule.last + 1, begin, n));
  }
}
/// Makes a row's elements from begin to end f of them, and all others 0.
template <class F>
void map_between(float* row, Index n, Index begin, Index end, const F& f) {
  std::fill(row, row + begin, 0.0F);
  std::transform(row + begin, row + end, row + begin, f);
  std::fill(row + end, row + n, 0.0F);
}

}  // namespace

SHARDBOOK_VECTORS void row_sums(const Tensor& t, Tensor& sums) {
  reduce_rows(t, t, sums, [](Index n, const float* x, const float*) {
    return emu::sum_of(n, [=](Index c) { return x[c]; });
  });
}

SHARDBOOK_VECTORS void row_dots(const Tensor& a, const Tensor& b, Tensor& dots) {
  reduce_rows(a, b, dots, [](Index n, const float* x, const float* y) {
    return emu::sum_of(n, [=](Index c) { return x[c] * y[c]; });
  });
}

SHARDBOOK_VECTORS void row_max(const Tensor& t, Tensor& most) {
  reduce_rows(t, t, most, [](Index n, const float* x, const float*) {
    return emu::largest_of(n, [=](Index c) { return x[c]; });
  });
}

SHARDBOOK_VECTORS void column_sums(const Tensor& t, Tensor& sums) {
  fold_columns(t, t, sums, plus);
}

SHARDBOOK_VECTORS void column_dots(const Tensor& a, const Tensor& b, Tensor& dots) {
  fold_columns(a, b, dots, plus_product);
}

SHARDBOOK_VECTORS void scale_rows(Tensor& t, const Tensor& factors) {
  with_rows(t, factors, [](float x, float factor) { return x * factor; });
}

SHARDBOOK_VECTORS void scale_columns(Tensor& t, const Tensor& factors) {
  with_columns(t, factors, [](float x, float factor) { return x * factor; });
}

SHARDBOOK_VECTORS void divide_rows(Tensor& t, const Tensor& divisors) {
  with_rows(t, divisors, [](float x, float divisor) { return divisor == 0 ? 0 : x / divisor; });
}

SHARDBOOK_VECTORS void add_to_rows(Tensor& t, const Tensor& row) {
  with_columns(t, row, [](float x, float addend) { return x + addend; });
}

SHARDBOOK_VECTORS void add_to_columns(Tensor& t, const Tensor& column) {
  with_rows(t, column, [](float x, float addend) { return x + addend; });
}

SHARDBOOK_VECTORS void exponentials(Tensor& z, const Tensor& largest, ExponentialBase base) {
  const emu::Power of_base = powers_of(base);
  with_rows(z, largest, [=](float x, float most) { return power(x, most, of_base); });
}

SHARDBOOK_VECTORS void powers_of_scores(Tensor& scores, const ScoreRule& rule, const Tensor* at_least,
                                        Tensor& largest, Tensor& sums) {
  const emu::Power of_base = powers_of(rule.base);
  const float scale = rule.scale;
  for_each_row(scores, rule, [&](Index i, float* row, Index begin, Index end) {
    const float so_far = at_least == nullptr ? -emu::infinity : TensorMemory::data(*at_least)[i];
    const float most =
        std::max(so_far, emu::largest_of(end - begin, [=](Index c) { return scale * row[begin + c]; }));
    map_between(row, scores.extent(2), begin, end, [=](float s) { return power(scale * s, most, of_base); });
    TensorMemory::data(largest)[i] = most;
    TensorMemory::data(sums)[i] = emu::sum_of(end - begin, [=](Index c) { return row[begin + c]; });
  });
}

SHARDBOOK_VECTORS void softmax_of_scores(Tensor& scores, const ScoreRule& rule, const Tensor& largest,
                                         const Tensor& sums) {
  const emu::Power of_base = powers_of(rule.base);
  const float scale = rule.scale;
  for_each_row(scores, rule, [&](Index i, float* row, Index begin, Index end) {
    const float most = TensorMemory::data(largest)[i], sum = TensorMemory::data(sums)[i];
    map_between(row, scores.extent(2), begin, end,
                [=](float s) { return sum == 0 ? 0 : power(scale * s, most, of_base) / sum; });
  });
}

SHARDBOOK_VECTORS void softmax_of_scores_backward(Tensor& dp, const Tensor& p, const Tensor& dots,
                                                  float factor) {
  const Index n = p.extent(2);
  for (Index i = 0; i < dots.size(); ++i) {
    const float dot = TensorMemory::data(dots)[i];
    float* d = TensorMemory::data(dp) + i * n;
    const float* of_p = TensorMemory::data(p) + i * n;
    for (Index c = 0; c < n; ++c) d[c] = of_p[c] * (d[c] - dot) * factor;
  }
}

SHARDBOOK_VECTORS void stack_heads(const Tensor& t, const HeadBlock& block, Tensor& stack) {
  for_each_in_heads(stack, t, block, [](float& to, float from) { to = from; });
}

SHARDBOOK_VECTORS void add_heads(Tensor& into, const HeadBlock& block, const Tensor& stack) {
  for_each_in_heads(stack, into, block, [](float from, float& to) { to += from; });
}

}  // namespace shard::kernels
