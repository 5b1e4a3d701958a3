/// Operations by rows: softmax, the largest of a row, and rows that are gathered, scattered and combined.

#include <algorithm>
#include <cmath>

#include "backend/checks.hpp"
#include "emu/memory.hpp"

namespace shard {

namespace {

const float* row_of(const Tensor& t, Index row) {
  return Backend::data(t) + row * t.extent(1);
}
float* row_of(Tensor& t, Index row) {
  return Backend::data(t) + row * t.extent(1);
}

/// Sum of weight(i, r) rows[slots(i, r)] in row i of the result.
template <class Weight>
Tensor combined(const Tensor& rows, std::span<const Index> slots, Index m, Index k, const Weight& weight) {
  require_matrix("combine_rows", rows);
  const Index d = rows.extent(1);
  Tensor sums({m, d});
  for (Index i = 0; i < m; ++i)
    for (Index r = 0; r < k; ++r) {
      const Index slot = slots[static_cast<std::size_t>(i * k + r)];
      if (slot == no_slot) continue;
      require_index("combine_rows", slot, rows.extent(0));
      const float* from = row_of(rows, slot);
      float* to = row_of(sums, i);
      const float w = weight(i * k + r);
      for (Index c = 0; c < d; ++c) to[c] += w * from[c];
    }
  return sums;
}

}  // namespace

Tensor softmax(Tensor&& z) {
  require_matrix("softmax", z);
  const Index n = z.extent(1);
  for (Index i = 0; i < z.extent(0) && n > 0; ++i) {
    float* row = row_of(z, i);
    const float largest = *std::max_element(row, row + n);
    float sum = 0;
    for (Index c = 0; c < n; ++c) sum += row[c] = std::exp(row[c] - largest);
    for (Index c = 0; c < n; ++c) row[c] /= sum;
  }
  return std::move(z);
}

Tensor softmax_backward(Tensor&& dp, const Tensor& p) {
  require_matrix("softmax_backward", p);
  if (dp.shape() != p.shape())
    refuse(Code::argument, "softmax_backward", "equal shapes",
           to_string(dp.shape()) + " and " + to_string(p.shape()));
  const Index n = p.extent(1);
  for (Index i = 0; i < p.extent(0); ++i) {
    const float* probability = row_of(p, i);
    float* d = row_of(dp, i);
    float sum = 0;
    for (Index c = 0; c < n; ++c) sum += probability[c] * d[c];
    for (Index c = 0; c < n; ++c) d[c] = probability[c] * (d[c] - sum);
  }
  return std::move(dp);
}

Tensor add_to_rows(Tensor&& t, std::span<const float> row) {
  require_matrix("add_to_rows", t);
  require_count("add_to_rows", "numbers", t.extent(1), static_cast<Index>(row.size()));
  for (Index i = 0; i < t.extent(0); ++i) {
    float* to = row_of(t, i);
    for (std::size_t c = 0; c < row.size(); ++c) to[c] += row[c];
  }
  return std::move(t);
}

std::vector<Index> top_k(const Tensor& t, Index k) {
  require_matrix("top_k", t);
  const Index n = t.extent(1);
  if (k < 1 || k > n)
    refuse(Code::argument, "top_k", "1 to " + std::to_string(n) + " columns", std::to_string(k));
  std::vector<Index> columns;
  std::vector<bool> is_taken(static_cast<std::size_t>(n));
  for (Index i = 0; i < t.extent(0); ++i) {
    const float* row = row_of(t, i);
    is_taken.assign(is_taken.size(), false);
    for (Index r = 0; r < k; ++r) {
      Index best = -1;
      for (Index c = 0; c < n; ++c)
        if (!is_taken[static_cast<std::size_t>(c)] && (best < 0 || row[c] > row[best])) best = c;
      is_taken[static_cast<std::size_t>(best)] = true;
      columns.push_back(best);
    }
  }
  return columns;
}

Tensor take_columns(const Tensor& t, std::span<const Index> columns, Index k) {
  require_matrix("take_columns", t);
  const Index m = t.extent(0);
  require_count("take_columns", "columns", m * k, static_cast<Index>(columns.size()));
  Tensor taken = Backend::make({m, k});
  for (Index i = 0; i < m * k; ++i) {
    const Index column = columns[static_cast<std::size_t>(i)];
    require_index("take_columns", column, t.extent(1));
    Backend::data(taken)[i] = row_of(t, i / k)[column];
  }
  return taken;
}

Tensor put_columns(const Tensor& values, std::span<const Index> columns, Index n) {
  require_matrix("put_columns", values);
  require_count("put_columns", "columns", values.size(), static_cast<Index>(columns.size()));
  const Index k = values.extent(1);
  Tensor all({values.extent(0), n});
  for (Index i = 0; i < values.size(); ++i) {
    const Index column = columns[static_cast<std::size_t>(i)];
    require_index("put_columns", column, n);
    row_of(all, i / k)[column] = Backend::data(values)[i];
  }
  return all;
}

Tensor gather_rows(const Tensor& t, std::span<const Index> at) {
  require_matrix("gather_rows", t);
  const auto m = static_cast<Index>(at.size());
  Tensor rows = Backend::make({m, t.extent(1)});
  for (Index i = 0; i < m; ++i) {
    const Index from = at[static_cast<std::size_t>(i)];
    require_index("gather_rows", from, t.extent(0));
    std::copy_n(row_of(t, from), t.extent(1), row_of(rows, i));
  }
  return rows;
}

void scatter_rows(const Tensor& rows, std::span<const Index> at, Tensor& into) {
  require_matrix("scatter_rows", rows);
  require_matrix("scatter_rows", into);
  require_count("scatter_rows", "rows", static_cast<Index>(at.size()), rows.extent(0));
  require_count("scatter_rows", "columns", into.extent(1), rows.extent(1));
  for (Index i = 0; i < rows.extent(0); ++i) {
    const Index to = at[static_cast<std::size_t>(i)];
    require_index("scatter_rows", to, into.extent(0));
    std::copy_n(row_of(rows, i), rows.extent(1), row_of(into, to));
  }
}

Tensor scale_rows(Tensor&& rows, const Tensor& factors, std::span<const Index> at) {
  require_matrix("scale_rows", rows);
  require_count("scale_rows", "rows", static_cast<Index>(at.size()), rows.extent(0));
  for (Index i = 0; i < rows.extent(0); ++i) {
    const Index which = at[static_cast<std::size_t>(i)];
    require_index("scale_rows", which, factors.size());
    const float factor = Backend::data(factors)[which];
    float* row = row_of(rows, i);
    for (Index c = 0; c < rows.extent(1); ++c) row[c] *= factor;
  }
  return std::move(rows);
}

Tensor combine_rows(const Tensor& rows, std::span<const Index> slots, const Tensor& weights) {
  require_matrix("combine_rows", weights);
  require_count("combine_rows", "slots", weights.size(), static_cast<Index>(slots.size()));
  const float* weight = Backend::data(weights);
  return combined(rows, slots, weights.extent(0), weights.extent(1), [=](Index i) { return weight[i]; });
}

Tensor combine_rows(const Tensor& rows, std::span<const Index> slots, Index k) {
  if (k < 1) refuse(Code::argument, "combine_rows", "at least 1 slot a row", std::to_string(k));
  const Index m = static_cast<Index>(slots.size()) / k;
  require_count("combine_rows", "slots", m * k, static_cast<Index>(slots.size()));
  return combined(rows, slots, m, k, [](Index) { return 1.0F; });
}

Tensor dot_rows(const Tensor& t, const Tensor& rows, std::span<const Index> slots, Index k) {
  require_matrix("dot_rows", t);
  require_matrix("dot_rows", rows);
  require_count("dot_rows", "columns", t.extent(1), rows.extent(1));
  require_count("dot_rows", "slots", t.extent(0) * k, static_cast<Index>(slots.size()));
  Tensor dots({t.extent(0), k});
  for (Index i = 0; i < dots.size(); ++i) {
    const Index slot = slots[static_cast<std::size_t>(i)];
    if (slot == no_slot) continue;
    require_index("dot_rows", slot, rows.extent(0));
    const float* a = row_of(t, i / k);
    const float* b = row_of(rows, slot);
    float sum = 0;
    for (Index c = 0; c < t.extent(1); ++c) sum += a[c] * b[c];
    Backend::data(dots)[i] = sum;
  }
  return dots;
}

}  // namespace shard
