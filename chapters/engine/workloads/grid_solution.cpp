#include "engine/workloads/grid_solution.hpp"

#include <algorithm>
#include <cmath>

#include "engine/layers/tokens.hpp"

namespace shard {

using exact::Matrix;
using exact::require_exact;

Matrix GridSolution::scaled(Matrix m, double factor) {
  for (double& value : m.values) value *= factor;
  return m;
}

void GridSolution::add_to(Matrix& sum, const Matrix& addend) {
  for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += addend.values[i];
}

Matrix GridSolution::weight(const std::string& name) const {
  HostTensor t = problem_.weights.at(name);
  if (t.shape.size() == 1) t.shape.insert(t.shape.begin(), 1);
  return Matrix(t);
}
Matrix GridSolution::rounded(Matrix m) const {
  for (double& value : m.values) value = grid_.rounded(static_cast<float>(value));
  return m;
}

Matrix GridSolution::normed(const Matrix& x, const std::string& name, Norm& kept) const {
  const Matrix w = weight(name);
  kept.x_hat = Matrix(x.rows, x.columns);
  Matrix y = kept.x_hat;
  for (Index t = 0; t < x.rows; ++t) {
    float squares = 0;
    for (Index c = 0; c < x.columns; ++c) {
      const auto value = static_cast<float>(x.at(t, c));
      squares += value * value;
    }
    kept.r.push_back(1 / std::sqrt(squares * (1 / static_cast<float>(x.columns)) + epsilon_));
    for (Index c = 0; c < x.columns; ++c) {
      kept.x_hat.at(t, c) = grid_.rounded(static_cast<float>(x.at(t, c)) * kept.r.back());
      y.at(t, c) = kept.x_hat.at(t, c) * w.at(0, c);
    }
  }
  return y;
}
Matrix GridSolution::norm_backward(const Matrix& dy, const std::string& name, const Norm& kept) {
  const Matrix w = weight(name);
  Matrix dw(1, dy.columns), dx(dy.rows, dy.columns);
  const double unit = exact::unit_of(dy) * exact::unit_of(kept.x_hat);
  for (Index c = 0; c < dy.columns; ++c) {
    double magnitude = 0;
    for (Index t = 0; t < dy.rows; ++t) {
      dw.at(0, c) += dy.at(t, c) * kept.x_hat.at(t, c);
      magnitude += std::abs(dy.at(t, c) * kept.x_hat.at(t, c));
    }
    require_exact(magnitude, unit);
  }
  for (Index t = 0; t < dy.rows; ++t) {
    float dots = 0;
    for (Index c = 0; c < dy.columns; ++c)
      dots += static_cast<float>(dy.at(t, c) * w.at(0, c)) * static_cast<float>(kept.x_hat.at(t, c));
    const float mean = dots * (1 / static_cast<float>(dy.columns));
    for (Index c = 0; c < dy.columns; ++c) {
      const float d =
          static_cast<float>(dy.at(t, c) * w.at(0, c)) - static_cast<float>(kept.x_hat.at(t, c)) * mean;
      dx.at(t, c) = grid_.rounded(d * kept.r[static_cast<std::size_t>(t)]);
    }
  }
  results_[name] = dw.as_floats();
  results_[name].shape = {dy.columns};
  return dx;
}

Matrix GridSolution::divided(Matrix t, const std::vector<double>& sums) {
  for (Index i = 0; i < t.rows; ++i)
    for (Index c = 0; c < t.columns; ++c)
      t.at(i, c) = static_cast<float>(t.at(i, c)) / static_cast<float>(sums[static_cast<std::size_t>(i)]);
  return t;
}

Matrix GridSolution::loss_gradient(const Matrix& logits, const std::vector<Index>& labels) {
  HostTensor losses{{logits.rows, 1}, {}};
  Matrix dz(logits.rows, logits.columns);
  for (Index t = 0; t < logits.rows; ++t) {
    const Index label = labels[static_cast<std::size_t>(t)];
    losses.values.push_back(0);
    if (label == Tokens::no_label) continue;
    double sum = 0;
    for (Index v = 0; v < logits.columns; ++v) sum += std::exp2(grid_.exponent(logits.at(t, v)));
    losses.values.back() = static_cast<float>(
        grid_.rounded(static_cast<float>(std::log2(sum) - grid_.exponent(logits.at(t, label)))));
    const float dloss = problem_.output_grad.values[static_cast<std::size_t>(t)];
    for (Index v = 0; v < logits.columns; ++v) {
      const float p =
          static_cast<float>(std::exp2(grid_.exponent(logits.at(t, v)))) / static_cast<float>(sum);
      dz.at(t, v) = grid_.rounded((v == label ? p - 1 : p) * dloss) * how_.logit_scale;
    }
  }
  results_["output"] = std::move(losses);
  return dz;
}

Matrix GridSolution::rows_of(const Matrix& t, const std::vector<Index>& rows) {
  Matrix some(static_cast<Index>(rows.size()), t.columns);
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (Index c = 0; c < t.columns; ++c) some.at(static_cast<Index>(i), c) = t.at(rows[i], c);
  return some;
}

void GridSolution::add_to_rows(Matrix& table, const std::vector<Index>& ids, const Matrix& rows) {
  for (Index t = 0; t < rows.rows; ++t)
    for (Index c = 0; c < rows.columns; ++c) table.at(ids[static_cast<std::size_t>(t)], c) += rows.at(t, c);
}

}  // namespace shard
