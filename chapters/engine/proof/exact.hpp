#pragma once

#include <map>
#include <string>

#include "engine/checkpoint.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/workloads/model.hpp"
#include "engine/workloads/routing.hpp"

namespace shard {

class CounterRandom;
class Digits;

/// A problem whose every sum is exact in float32, so that any cut and any order of summation must give the
/// same bits: small integers throughout, and Σ |a| |b| ≤ 2²⁴ for every product, forward and backward.
struct ExactProblem {
  Model model;
  HostTensor input;        ///< (B, D), 0..16; the last of several rows is zeros: the kink of every ReLU
  HostTensor output_grad;  ///< like the output, −2..2
  std::map<std::string, HostTensor> weights;  ///< dense −2..2 for two layers, sparse ±1 for deeper stacks
  Routing routing;                            ///< of a mixture; its weights and aux_weight keep gates exact
};

/// Pixels of digits for the input where the model is as wide as they are, else integers of the same range.
ExactProblem make_exact_problem(const Model& model, Index batch, std::uint64_t seed,
                                const Digits* digits = nullptr);

/// Output (`output`), dL/dx (`input_grad`) and each parameter's gradient, from the definitions, in arithmetic
/// that is exact: independent of engines and tensors. \throws Error internal when a product's Σ |a| |b|
/// exceeds 2²⁴
std::map<std::string, HostTensor> solve(const ExactProblem& problem);

/// The weights of the problem after one step of the integer optimizer, but a router's, with these gradients.
void integer_step(ExactProblem& problem, const std::map<std::string, HostTensor>& gradients);

/// What exact problems are made of and solved with, also those of a chapter with a network of its own.
namespace exact {

/// `scale` times integers from low to high.
HostTensor integers(Shape shape, const CounterRandom& random, int low, int high, float scale = 1);
/// A matrix with two entries ±1 a column: values grow by 2 a layer at most.
HostTensor sparse_signs(Shape shape, const CounterRandom& random);

/// Row-major (rows, columns), of integers times powers of two: float64 holds them and their products exactly.
struct Matrix {
  Index rows = 0;
  Index columns = 0;
  std::vector<double> values;

  /// Zeros.
  Matrix(Index rows, Index columns);
  explicit Matrix(const HostTensor& t);
  double& at(Index r, Index c) { return values[static_cast<std::size_t>(r * columns + c)]; }
  double at(Index r, Index c) const { return values[static_cast<std::size_t>(r * columns + c)]; }
  Matrix transposed() const;
  HostTensor as_floats() const;
};

/// The largest power of two that divides a number, or all elements; infinite for 0, a multiple of any.
double unit_of(double value);
double unit_of(const Matrix& m);

/// That a sum is exact in float32 in any order: its addends are multiples of `unit`, a power of two, and
/// their absolute values add up to `magnitude`, 2²⁴ units at most. \throws Error internal when that is not so
void require_exact(double magnitude, double unit);

/// a b, of integers. \throws Error internal when a sum would not be exact in float32
Matrix product(const Matrix& a, const Matrix& b);
/// The same of other multiples of powers of two.
Matrix scaled_product(const Matrix& a, const Matrix& b);

}  // namespace exact

}  // namespace shard
