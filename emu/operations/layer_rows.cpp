/// Sums, products and additions by rows and columns, and operations on attention's scores.

#include <algorithm>
#include <cmath>
#include <limits>

#include "emu/operations/host_memory.hpp"
#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/layer_checks.hpp"

namespace shard {

using emu::row_of;
using runtime::note_elementwise;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Folds each row: result[i] = f(result[i], a(i, c), b(i, c)), in ascending c, from `initial` on.
template <class F>
Tensor folded_rows(const Tensor& a, const Tensor& b, float initial, const F& f) {
  const Index rows = a.extent(0), columns = a.extent(1);
  Tensor result = TensorMemory::make({rows});
  for (Index i = 0; i < rows; ++i) {
    const float* left = row_of(a, i);
    const float* right = row_of(b, i);
    float value = initial;
    for (Index c = 0; c < columns; ++c) value = f(value, left[c], right[c]);
    TensorMemory::data(result)[i] = value;
  }
  return result;
}

/// Folds each column: result[c] = f(result[c], a(i, c), b(i, c)), in ascending i, from 0 on.
template <class F>
Tensor folded_columns(const Tensor& a, const Tensor& b, const F& f) {
  const Index rows = a.extent(0), columns = a.extent(1);
  Tensor result({columns});
  float* values = TensorMemory::data(result);
  for (Index i = 0; i < rows; ++i) {
    const float* left = row_of(a, i);
    const float* right = row_of(b, i);
    for (Index c = 0; c < columns; ++c) values[c] = f(values[c], left[c], right[c]);
  }
  return result;
}

float plus(float sum, float x, float) {
  return sum + x;
}
float plus_product(float sum, float x, float y) {
  return sum + x * y;
}

/// t(i, c) = f(t(i, c), numbers[i]).
template <class F>
Tensor with_rows(const char* call, Tensor&& t, const Tensor& numbers, const F& f) {
  note_elementwise(call, t.size());
  require_one_for_each_row(call, t, numbers);
  const Index rows = t.extent(0), columns = t.extent(1);
  for (Index i = 0; i < rows; ++i) {
    const float number = TensorMemory::data(numbers)[i];
    float* row = row_of(t, i);
    for (Index c = 0; c < columns; ++c) row[c] = f(row[c], number);
  }
  return std::move(t);
}

/// t(i, c) = f(t(i, c), numbers[c]).
template <class F>
Tensor with_columns(const char* call, Tensor&& t, const Tensor& numbers, const F& f) {
  note_elementwise(call, t.size());
  require_one_for_each_column(call, t, numbers);
  const float* number = TensorMemory::data(numbers);
  const Index rows = t.extent(0), columns = t.extent(1);
  for (Index i = 0; i < rows; ++i) {
    float* row = row_of(t, i);
    for (Index c = 0; c < columns; ++c) row[c] = f(row[c], number[c]);
  }
  return std::move(t);
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

/// Calls f(i, row, begin, end) for each row of a stack of scores, whose elements from begin to end have powers.
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

Tensor row_sums(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  note_elementwise("row_sums", t.size());
  require_matrix("row_sums", t);
  return folded_rows(t, t, 0, plus);
}

Tensor row_dots(const Tensor& a, const Tensor& b, SourceLine where) {
  const CallSite call(where);
  note_elementwise("row_dots", a.size());
  require_same_matrices("row_dots", a, b);
  return folded_rows(a, b, 0, plus_product);
}

Tensor row_max(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  note_elementwise("row_max", t.size());
  require_matrix("row_max", t);
  return folded_rows(t, t, -infinity,
                     [](float largest, float x, float) { return x > largest ? x : largest; });
}

Tensor column_sums(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  note_elementwise("column_sums", t.size());
  require_matrix("column_sums", t);
  return folded_columns(t, t, plus);
}

Tensor column_dots(const Tensor& a, const Tensor& b, SourceLine where) {
  const CallSite call(where);
  note_elementwise("column_dots", a.size());
  require_same_matrices("column_dots", a, b);
  return folded_columns(a, b, plus_product);
}

Tensor scale_rows(Tensor&& t, const Tensor& factors, SourceLine where) {
  const CallSite call(where);
  return with_rows("scale_rows", std::move(t), factors, [](float x, float factor) { return x * factor; });
}

Tensor scale_columns(Tensor&& t, const Tensor& factors, SourceLine where) {
  const CallSite call(where);
  return with_columns("scale_columns", std::move(t), factors,
                      [](float x, float factor) { return x * factor; });
}

Tensor divide_rows(Tensor&& t, const Tensor& divisors, SourceLine where) {
  const CallSite call(where);
  return with_rows("divide_rows", std::move(t), divisors,
                   [](float x, float divisor) { return divisor == 0 ? 0 : x / divisor; });
}

Tensor add_to_rows(Tensor&& t, const Tensor& row, SourceLine where) {
  const CallSite call(where);
  return with_columns("add_to_rows", std::move(t), row, [](float x, float addend) { return x + addend; });
}

Tensor add_to_columns(Tensor&& t, const Tensor& column, SourceLine where) {
  const CallSite call(where);
  return with_rows("add_to_columns", std::move(t), column, [](float x, float addend) { return x + addend; });
}

Tensor exponentials(Tensor&& z, const Tensor& largest, ExponentialBase base, SourceLine where) {
  const CallSite call(where);
  return with_rows("exponentials", std::move(z), largest,
                   [base](float x, float most) { return power(x, most, base); });
}

ScorePowers powers_of_scores(Tensor&& scores, const ScoreRule& rule, const Tensor* at_least,
                             SourceLine where) {
  const CallSite call(where);
  note_elementwise("powers_of_scores", scores.size());
  const Index rows = rows_of_scores("powers_of_scores", scores, {at_least});
  Tensor largest = TensorMemory::make({rows}), sums = TensorMemory::make({rows});
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
  return {std::move(scores), std::move(largest), std::move(sums)};
}

Tensor softmax_of_scores(Tensor&& scores, const ScoreRule& rule, const Tensor& largest, const Tensor& sums,
                         SourceLine where) {
  const CallSite call(where);
  note_elementwise("softmax_of_scores", scores.size());
  rows_of_scores("softmax_of_scores", scores, {&largest, &sums});
  for_each_row(scores, rule, [&](Index i, float* row, Index begin, Index end) {
    const float most = TensorMemory::data(largest)[i], sum = TensorMemory::data(sums)[i];
    map_between(row, scores.extent(2), begin, end,
                [&](float s) { return sum == 0 ? 0 : power(rule.scale * s, most, rule.base) / sum; });
  });
  return std::move(scores);
}

Tensor softmax_of_scores_backward(Tensor&& dp, const Tensor& p, const Tensor& dots, float factor,
                                  SourceLine where) {
  const CallSite call(where);
  note_elementwise("softmax_of_scores_backward", p.size());
  require_same_shape("softmax_of_scores_backward", dp, p);
  rows_of_scores("softmax_of_scores_backward", p, {&dots});
  const Index n = p.extent(2);
  for (Index i = 0; i < dots.size(); ++i) {
    const float dot = TensorMemory::data(dots)[i];
    float* d = TensorMemory::data(dp) + i * n;
    const float* of_p = TensorMemory::data(p) + i * n;
    for (Index c = 0; c < n; ++c) d[c] = of_p[c] * (d[c] - dot) * factor;
  }
  return std::move(dp);
}

Tensor stack_heads(const Tensor& t, const HeadBlock& block, SourceLine where) {
  const CallSite call(where);
  Tensor stack = TensorMemory::make(shape_of_heads("stack_heads", t, block));
  note_elementwise("stack_heads", stack.size());
  for_each_head(stack, t, block,
                [&](float* to, const float* from) { std::copy_n(from, block.head_dim, to); });
  return stack;
}

void add_heads(const Tensor& stack, const HeadBlock& block, Tensor& into, SourceLine where) {
  const CallSite call(where);
  note_elementwise("add_heads", stack.size());
  require_shape("add_heads", shape_of_heads("add_heads", into, block), stack);
  for_each_head(stack, into, block, [&](const float* from, float* to) {
    for (Index c = 0; c < block.head_dim; ++c) to[c] += from[c];
  });
}

}  // namespace shard
