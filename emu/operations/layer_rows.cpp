/// Sums, products and additions by rows and columns, and operations on attention's scores.

#include <algorithm>
#include <cmath>
#include <limits>

#include "emu/operations/host_memory.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

using emu::row_of;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Folds each row: result[i] = f(result[i], a(i, c), b(i, c)), in ascending c, from `initial` on.
template <class F>
void fold_rows(const Tensor& a, const Tensor& b, Tensor& result, float initial, const F& f) {
  const Index rows = a.extent(0), columns = a.extent(1);
  for (Index i = 0; i < rows; ++i) {
    const float* left = row_of(a, i);
    const float* right = row_of(b, i);
    float value = initial;
    for (Index c = 0; c < columns; ++c) value = f(value, left[c], right[c]);
    TensorMemory::data(result)[i] = value;
  }
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

/// Calls f(row of the stack, row of t) for each row of a block of t.
template <class Stack, class T, class F>
void for_each_head(Stack& stack, T& t, const HeadBlock& block, const F& f) {
  const auto& [all, sequences, rows, d, heads] = block;
  auto* of_stack = TensorMemory::data(stack);
  for (Index s = sequences.begin; s < sequences.end; ++s)
    for (Index head : heads)
      for (Index row = rows.begin; row < rows.end; ++row, of_stack += d)
        f(of_stack, row_of(t, s * (t.extent(0) / all) + row) + head * d);
}

/// base^(x − largest). A power of two is 2^fraction times 2^integer, which is exact for integers.
float power(float x, float largest, ExponentialBase base) {
  if (x == -infinity) return 0;
  x -= largest;
  if (base == ExponentialBase::e) return std::exp(x);
  const float integer = std::fmin(std::fmax(std::rint(x), -300.0F), 300.0F);
  return std::ldexp(std::exp2(x - integer), static_cast<int>(integer));
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

void row_sums(const Tensor& t, Tensor& sums) {
  fold_rows(t, t, sums, 0, plus);
}

void row_dots(const Tensor& a, const Tensor& b, Tensor& dots) {
  fold_rows(a, b, dots, 0, plus_product);
}

void row_max(const Tensor& t, Tensor& most) {
  fold_rows(t, t, most, -infinity, [](float largest, float x, float) { return x > largest ? x : largest; });
}

void column_sums(const Tensor& t, Tensor& sums) {
  fold_columns(t, t, sums, plus);
}

void column_dots(const Tensor& a, const Tensor& b, Tensor& dots) {
  fold_columns(a, b, dots, plus_product);
}

void scale_rows(Tensor& t, const Tensor& factors) {
  with_rows(t, factors, [](float x, float factor) { return x * factor; });
}

void scale_columns(Tensor& t, const Tensor& factors) {
  with_columns(t, factors, [](float x, float factor) { return x * factor; });
}

void divide_rows(Tensor& t, const Tensor& divisors) {
  with_rows(t, divisors, [](float x, float divisor) { return divisor == 0 ? 0 : x / divisor; });
}

void add_to_rows(Tensor& t, const Tensor& row) {
  with_columns(t, row, [](float x, float addend) { return x + addend; });
}

void add_to_columns(Tensor& t, const Tensor& column) {
  with_rows(t, column, [](float x, float addend) { return x + addend; });
}

void exponentials(Tensor& z, const Tensor& largest, ExponentialBase base) {
  with_rows(z, largest, [base](float x, float most) { return power(x, most, base); });
}

void powers_of_scores(Tensor& scores, const ScoreRule& rule, const Tensor* at_least, Tensor& largest,
                      Tensor& sums) {
  for_each_row(scores, rule, [&](Index i, float* row, Index begin, Index end) {
    float most = at_least == nullptr ? -infinity : TensorMemory::data(*at_least)[i], sum = 0;
    for (Index c = begin; c < end; ++c) most = rule.scale * row[c] > most ? rule.scale * row[c] : most;
    map_between(row, scores.extent(2), begin, end, [&](float s) {
      s = power(rule.scale * s, most, rule.base);
      sum += s;
      return s;
    });
    TensorMemory::data(largest)[i] = most;
    TensorMemory::data(sums)[i] = sum;
  });
}

void softmax_of_scores(Tensor& scores, const ScoreRule& rule, const Tensor& largest, const Tensor& sums) {
  for_each_row(scores, rule, [&](Index i, float* row, Index begin, Index end) {
    const float most = TensorMemory::data(largest)[i], sum = TensorMemory::data(sums)[i];
    map_between(row, scores.extent(2), begin, end,
                [&](float s) { return sum == 0 ? 0 : power(rule.scale * s, most, rule.base) / sum; });
  });
}

void softmax_of_scores_backward(Tensor& dp, const Tensor& p, const Tensor& dots, float factor) {
  const Index n = p.extent(2);
  for (Index i = 0; i < dots.size(); ++i) {
    const float dot = TensorMemory::data(dots)[i];
    float* d = TensorMemory::data(dp) + i * n;
    const float* of_p = TensorMemory::data(p) + i * n;
    for (Index c = 0; c < n; ++c) d[c] = of_p[c] * (d[c] - dot) * factor;
  }
}

void stack_heads(const Tensor& t, const HeadBlock& block, Tensor& stack) {
  for_each_head(stack, t, block,
                [&](float* to, const float* from) { std::copy_n(from, block.head_dim, to); });
}

void add_heads(Tensor& into, const HeadBlock& block, const Tensor& stack) {
  for_each_head(stack, into, block, [&](const float* from, float* to) {
    for (Index c = 0; c < block.head_dim; ++c) to[c] += from[c];
  });
}

}  // namespace shard::kernels
