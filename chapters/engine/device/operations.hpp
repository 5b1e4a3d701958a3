#pragma once

/// The operations on tensors. (Part of device.hpp.)

#include "engine/device/tensor.hpp"

namespace shard {

/// \name Operations
/// Most return a new tensor. An operation that can reuse an argument's memory consumes it (`Tensor&&`).
/// All throw Error argument when shapes do not fit. Each comment gives the shapes.
/// @{

/// A factor of a matrix product: a matrix, or its transpose; or a stack of matrices (b, rows, columns), or their
/// transposes. The tensor must outlive it.
struct Operand {
  const Tensor* tensor;
  bool is_transposed = false;
  Index columns_in_bf16 = 0;  ///< if not 0, the tensor is to_bf16's result for a matrix of so many columns

  Operand(const Tensor& matrix, bool transpose = false, Index of_bf16 = 0)
      : tensor(&matrix), is_transposed(transpose), columns_in_bf16(of_bf16) {}
  /// The matrix's shape as it is stored: not transposed, and in numbers, also if two lie in one element.
  Shape shape() const;
};
inline Operand transposed(const Tensor& matrix) {
  return {matrix, true};
}

/// The precision to which matrix products round their operands: 24, 11 or 8 bits of significand. Sums are float32.
enum class Precision { float32, tf32, bf16 };
/// Sets the precision of this device's products from now on. Until the first call it is float32.
void set_precision(Precision precision);
Precision precision();
/// A matrix (m, n) rounded to bf16 (to nearest, ties to even), for products in this precision. Two numbers of
/// a row lie in one element: (m, ⌈n/2⌉).
Tensor to_bf16(const Tensor& matrix, SourceLine where = SourceLine::current());
/// The columns of to_bf16's result, ⌈n/2⌉.
constexpr Index columns_of_pairs(Index n) {
  return (n + 1) / 2;
}

/// The sum of `addends` matrices of n columns, which lie below one another as to_bf16 leaves them: (addends m, ⌈n/2⌉) → (m,
/// n). The sums are float32, from the first one to the last.
Tensor sum_of_bf16(const Tensor& pairs, Index addends, Index n, SourceLine where = SourceLine::current());

/// The product of (m, k) and (k, n), of shape (m, n). A transposed operand is not copied. The product of stacks
/// (b, m, k) and (b, k, n) has the product of each pair, (b, m, n).
Tensor matmul(Operand a, Operand b, SourceLine where = SourceLine::current());
/// c += a b, in place. Engines accumulate gradients with it.
void matmul_accumulate(Operand a, Operand b, Tensor& c, SourceLine where = SourceLine::current());

/// max(z, 0), same shape. NaN stays NaN.
Tensor relu(const Tensor& z, SourceLine where = SourceLine::current());
Tensor relu(Tensor&& z, SourceLine where = SourceLine::current());
/// dz = dh where z > 0 or NaN, otherwise 0 (also at z = 0). z may be ReLU's argument or its result.
Tensor relu_backward(Tensor&& dh, const Tensor& z, SourceLine where = SourceLine::current());

/// Elementwise, same shapes.
Tensor add(Tensor&& a, const Tensor& b, SourceLine where = SourceLine::current());
Tensor subtract(Tensor&& a, const Tensor& b, SourceLine where = SourceLine::current());
Tensor multiply(Tensor&& a, const Tensor& b, SourceLine where = SourceLine::current());
/// Every element times `factor`.
Tensor scale(Tensor&& a, float factor, SourceLine where = SourceLine::current());

/// Elements [begin, end) along `axis`, as a new tensor.
Tensor slice(const Tensor& t, int axis, Index begin, Index end, SourceLine where = SourceLine::current());
/// Copies `values` into these rows. `values` has the rows' shape.
void assign(Rows rows, const Tensor& values, SourceLine where = SourceLine::current());
/// Concatenates tensors along `axis`. Their other extents are equal.
Tensor concatenate(std::span<const Tensor* const> parts, int axis, SourceLine where = SourceLine::current());

/// Sum of squares, accumulated in float64.
Later<double> sum_of_squares(const Tensor& t, SourceLine where = SourceLine::current());
/// Whether no element is a NaN or an infinity.
bool all_finite(const Tensor& t, SourceLine where = SourceLine::current());

/// factor * (output - target), the gradient of a squared error, in the memory of `target`.
Tensor scaled_difference(const Tensor& output, Tensor&& target, float factor,
                         SourceLine where = SourceLine::current());

/// w -= rate * g. `g` has the shape of the rows.
void sgd_update(Rows w, const Tensor& g, float rate, SourceLine where = SourceLine::current());
/// One step of Adam (Kingma and Ba 2015, algorithm 1) with bias correction; m and v have the rows' shape.
struct AdamSettings {
  float rate = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
};
void adam_update(Rows w, const Tensor& g, Tensor& m, Tensor& v, const AdamSettings& settings, Index step,
                 SourceLine where = SourceLine::current());
/// w <- ((w - g) mod 5) - 2, where mod gives 0..4. Weights stay small integers, so sums are exact over many steps.
void integer_update(Rows w, const Tensor& g, SourceLine where = SourceLine::current());
/// @}

/// \name Operations on the rows of matrices, for mixtures of experts
/// Each row of the result depends on one or a few rows of the arguments. All functions throw Error argument for
/// an index out of range.
/// @{

/// A list of indices in the host's memory, or a part of one. A GPU copies the whole list when an operation
/// first takes a part of it: what operations take of one batch should be one list.
class Indices {
 public:
  Indices() = default;
  Indices(std::vector<Index> all) : Indices(std::make_shared<const std::vector<Index>>(std::move(all))) {}
  Indices(std::shared_ptr<const std::vector<Index>> all) : whole_(std::move(all)), part_(*whole_) {}
  Indices(std::span<const Index> all) : Indices(std::vector<Index>(all.begin(), all.end())) {}

  /// `count` of these, from `first` on.
  Indices range(Index first, Index count) const {
    Indices some = *this;
    some.part_ = part_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    return some;
  }
  /// The same part of another list that is as long as the whole of this one.
  Indices same_part_of(std::vector<Index> another) const {
    const Indices all(std::move(another));
    return whole_ ? all.range(begin() - whole_->data(), size()) : all;
  }

  Index size() const { return std::ssize(part_); }
  const Index* begin() const { return part_.data(); }
  const Index* end() const { return begin() + part_.size(); }
  Index operator[](Index i) const { return part_[static_cast<std::size_t>(i)]; }
  operator std::span<const Index>() const { return part_; }
  /// The list of which these are a part.
  std::span<const Index> whole() const { return whole_ ? *whole_ : std::span<const Index>(); }

 private:
  std::shared_ptr<const std::vector<Index>> whole_;
  std::span<const Index> part_;  // in it
};

/// exp(z) / Σ exp(z) of each row, in the memory of z. The row's largest element is subtracted first.
Tensor softmax(Tensor&& z, SourceLine where = SourceLine::current());
/// dz = p ⊙ (dp − Σ p dp), the sum over the row, in the memory of dp. p is softmax's result.
Tensor softmax_backward(Tensor&& dp, const Tensor& p, SourceLine where = SourceLine::current());
/// t (m, n) with `row` (n) added to each row, in the memory of t.
Tensor add_to_rows(Tensor&& t, std::span<const float> row, SourceLine where = SourceLine::current());
/// The columns of the k largest elements of each row of t (m, n), largest first; of equal elements, the one
/// in the lower column comes first. Returns m k columns, row by row.
Later<std::vector<Index>> top_k(const Tensor& t, Index k, SourceLine where = SourceLine::current());
/// How often top_k takes each column, (n).
Tensor top_k_counts(const Tensor& t, Index k, SourceLine where = SourceLine::current());
/// Makes top_k choose columns round-robin, independent of the elements: every column equally often. `costs` uses
/// it. (Megatron-LM's --moe-router-force-load-balancing.)
void choose_in_turn(bool is_wanted);

/// Marks an absent index in a list of slots, columns or rows.
inline constexpr Index no_slot = -1;
/// The elements of k columns of each row of t (m, n): (m, k). `columns` has the layout of top_k's result. For
/// no_slot the element is 0.
Tensor take_columns(const Tensor& t, const Indices& columns, Index k,
                    SourceLine where = SourceLine::current());
/// The inverse of take_columns: a matrix (m, n) with `values` (m, k) in these columns and 0 elsewhere. The
/// columns of one row differ.
Tensor put_columns(const Tensor& values, const Indices& columns, Index n,
                   SourceLine where = SourceLine::current());

/// Row i of the result is row at[i] of t.
Tensor gather_rows(const Tensor& t, const Indices& at, SourceLine where = SourceLine::current());
/// The inverse of gather_rows: copies row i of `rows` to row at[i] of `into`. The at[i] differ. Other rows of
/// `into` do not change.
void scatter_rows(const Tensor& rows, const Indices& at, Tensor& into,
                  SourceLine where = SourceLine::current());
/// Multiplies row i by element at[i] of `factors`, in row-major order. Works in the rows' memory.
Tensor scale_rows(Tensor&& rows, const Tensor& factors, const Indices& at,
                  SourceLine where = SourceLine::current());

/// Row i of the result (m, d) is Σ_r weights(i, r) · rows[slots(i, r)], in ascending r, without those of no_slot.
/// `weights` is (m, k), `slots` has m k indices, row by row, and `rows` is (n, d).
Tensor combine_rows(const Tensor& rows, const Indices& slots, const Tensor& weights,
                    SourceLine where = SourceLine::current());
/// The same, with k slots for each row and every weight 1.
Tensor combine_rows(const Tensor& rows, const Indices& slots, Index k,
                    SourceLine where = SourceLine::current());
/// The gradient of combine_rows with respect to its weights, (m, k). Element (i, r) is the dot product of row
/// i of t (m, d) and row slots(i, r) of rows (n, d), or 0 for no_slot.
Tensor dot_rows(const Tensor& t, const Tensor& rows, const Indices& slots, Index k,
                SourceLine where = SourceLine::current());
/// @}

}  // namespace shard
