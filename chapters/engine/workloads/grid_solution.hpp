#pragma once

#include <vector>

#include "engine/layers/arithmetic.hpp"
#include "engine/proof/exact.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// float32 numbers on the grid.
class Grid {
 public:
  explicit Grid(const Arithmetic& how) : how_(how) {}

  double rounded(float x) const {
    return std::clamp(std::rint(x / how_.unit) * how_.unit, -how_.limit, how_.limit);
  }
  double exponent(double x) const {
    return std::clamp(std::rint(x), -double{Arithmetic::largest_exponent},
                      double{Arithmetic::largest_exponent});
  }

 private:
  Arithmetic how_;
};

/// What RMSNorm keeps of its rows.
struct Norm {
  exact::Matrix x_hat{0, 0};
  std::vector<float> r{};
};

/// What the definitions of language models on the grid share: whole matrices on the host. Sums are exact;
/// what is nonlinear is computed in float32 as the grid rounds it. Nothing here uses a layer or a tensor.
class GridSolution {
 protected:
  using Matrix = exact::Matrix;

  GridSolution(const Arithmetic& how, float epsilon, const ExactProblem& problem)
      : problem_(problem), grid_(how), how_(how), epsilon_(epsilon) {}

  Matrix weight(const std::string& name) const;
  Matrix rounded(Matrix m) const;
  static Matrix scaled(Matrix m, double factor);
  static void add_to(Matrix& sum, const Matrix& addend);
  /// Each row by its sum, in float32.
  static Matrix divided(Matrix t, const std::vector<double>& sums);

  /// RMSNorm with the weights of this name. The backward function puts their gradient.
  /// @{
  Matrix normed(const Matrix& x, const std::string& name, Norm& kept) const;
  Matrix norm_backward(const Matrix& dy, const std::string& name, const Norm& kept);
  /// @}
  /// The losses of these labels, which it puts as the output, and dL/dlogits.
  Matrix loss_gradient(const Matrix& logits, const std::vector<Index>& labels);
  /// The gradient of a table through the rows of these tokens.
  static void add_to_rows(Matrix& table, const std::vector<Index>& ids, const Matrix& rows);
  static Matrix rows_of(const Matrix& t, const std::vector<Index>& rows);

  void put(const std::string& name, const Matrix& gradient) { results_[name] = gradient.as_floats(); }

  const ExactProblem& problem_;
  Grid grid_;
  Arithmetic how_;
  float epsilon_;
  Solution results_;
};

}  // namespace shard
