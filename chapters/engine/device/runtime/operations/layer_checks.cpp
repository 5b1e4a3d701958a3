#include "engine/device/runtime/operations/layer_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace shard {

namespace {

void require_vector(const char* call, const char* of_what, const Tensor& t, Index extent,
                    const Tensor& numbers) {
  if (numbers.shape() != Shape{extent})
    refuse(Code::argument, call,
           to_string({extent}) + ", one number for each " + of_what + " of " + to_string(t.shape()),
           to_string(numbers.shape()));
}

}  // namespace

void require_same_matrices(const char* call, const Tensor& a, const Tensor& b) {
  require_matrix(call, a);
  require_same_shape(call, a, b);
}

void require_one_for_each_row(const char* call, const Tensor& t, const Tensor& numbers) {
  require_matrix(call, t);
  require_vector(call, "row", t, t.extent(0), numbers);
}

void require_one_for_each_column(const char* call, const Tensor& t, const Tensor& numbers) {
  require_matrix(call, t);
  require_vector(call, "column", t, t.extent(1), numbers);
}

Index rows_of_scores(const char* call, const Tensor& scores, std::initializer_list<const Tensor*> numbers) {
  if (scores.rank() != 3) refuse(Code::argument, call, "a stack of matrices", to_string(scores.shape()));
  const Index rows = scores.extent(0) * scores.extent(1);
  for (const Tensor* of_rows : numbers)
    if (of_rows != nullptr) require_vector(call, "row", scores, rows, *of_rows);
  return rows;
}

Shape shape_of_heads(const char* call, const Tensor& t, const HeadBlock& block) {
  require_matrix(call, t);
  const auto& [all, sequences, rows, d, heads] = block;
  auto is_within = [](Range part, Index end) {
    return part.begin >= 0 && part.begin <= part.end && part.end <= end;
  };
  if (all < 1 || t.extent(0) % all != 0 || !is_within(sequences, all) || !is_within(rows, t.extent(0) / all))
    refuse(Code::argument, call,
           fmt::format("rows of {} sequences of one length, and some of each", std::max<Index>(all, 1)),
           fmt::format("{} with rows {} to {} of sequences {} to {}", to_string(t.shape()), rows.begin,
                       rows.end, sequences.begin, sequences.end));
  if (d < 1 || t.extent(1) % d != 0)
    refuse(Code::argument, call, "a head_dim that divides the columns of " + to_string(t.shape()),
           std::to_string(d));
  for (Index head : heads)
    if (head < 0 || head >= t.extent(1) / d)
      refuse(Code::argument, call, fmt::format("heads from 0 to {}", t.extent(1) / d - 1),
             std::to_string(head));
  return {sequences.size() * count_of(heads), rows.size(), d};
}

void require_unit(float unit, float limit) {
  int exponent = 0;
  if (unit != 0 && std::frexp(unit, &exponent) != 0.5F)
    refuse(Code::argument, "round_to", "a unit that is 0 or a power of two", fmt::format("{}", unit));
  if (!(limit >= 0)) refuse(Code::argument, "round_to", "a limit of 0 or more", fmt::format("{}", limit));
}

std::vector<double> angles_of_a_head(const char* call, const Tensor& t, std::span<const Index> positions,
                                     Index head_dim, double base) {
  require_matrix(call, t);
  const Index rows = t.extent(0), n = count_of(positions);
  if (n == 0 ? rows > 0 : rows % n != 0)
    refuse(Code::argument, call, "positions whose number divides the rows of " + to_string(t.shape()),
           std::to_string(n));
  if (head_dim < 2 || head_dim % 2 != 0 || t.extent(1) % head_dim != 0)
    refuse(Code::argument, call, "an even head_dim that divides the columns of " + to_string(t.shape()),
           std::to_string(head_dim));
  if (!(base > 0) || std::isinf(base))
    refuse(Code::argument, call, "a finite base above 0", fmt::format("{}", base));
  std::vector<double> angles;
  for (Index j = 0; j < head_dim / 2; ++j)
    angles.push_back(std::pow(base, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim)));
  return angles;
}

void require_losses(const Tensor& largest, const Tensor& sums, const Tensor& of_labels,
                    std::span<const Index> labels) {
  const Index rows = count_of(labels);
  require_shape("losses_of_labels", {rows, 1}, of_labels);
  require_one_for_each_row("losses_of_labels", of_labels, largest);
  require_one_for_each_row("losses_of_labels", of_labels, sums);
}

void require_addends(const Tensor& rows, std::span<const Index> at, const Tensor& into) {
  const char* call = "scatter_add_rows";
  require_matrix(call, rows);
  require_matrix(call, into);
  if (rows.extent(1) != into.extent(1))
    refuse(Code::argument, call, "rows of the length of those of " + to_string(into.shape()),
           to_string(rows.shape()));
  require_count(call, ("indices, one for each row of " + to_string(rows.shape())).c_str(), rows.extent(0),
                count_of(at));
  require_slots(call, at, into.extent(0));
}

void require_subtrahends(const Tensor& t, std::span<const Index> columns, const Tensor& values) {
  const char* call = "subtract_at_columns";
  require_matrix(call, t);
  require_matrix(call, values);
  if (values.extent(0) != t.extent(0))
    refuse(Code::argument, call, "values for each row of " + to_string(t.shape()), to_string(values.shape()));
  require_count(call, ("columns, one for each of the values " + to_string(values.shape())).c_str(),
                values.size(), count_of(columns));
  require_slots(call, columns, t.extent(1));
}

}  // namespace shard
