#pragma once

/// The operations of norms, attention, gates and embeddings. (Part of device.hpp.)

#include "engine/device/operations.hpp"

namespace shard {

/// \name Sums, scales and addends by rows and by columns
/// Matrices have m rows and n columns. A vector (m) has one number for each row, and a vector (n) one for each
/// column. Sums are float32, and add in a fixed order, so they are reproducible: on the CPU, those of columns in ascending
/// order, and those of rows as 16 sums, of every 16th number each. All throw Error argument when shapes do not fit.
/// @{

/// The sum of each row, (m).
Tensor row_sums(const Tensor& t, SourceLine where = SourceLine::current());
/// The dot product of each row of a with the same row of b, (m). Both are (m, n).
Tensor row_dots(const Tensor& a, const Tensor& b, SourceLine where = SourceLine::current());
/// The largest element of each row, (m). It is -infinity for n = 0. NaNs are ignored.
Tensor row_max(const Tensor& t, SourceLine where = SourceLine::current());
/// The sum of each column, (n).
Tensor column_sums(const Tensor& t, SourceLine where = SourceLine::current());
/// The dot product of each column of a with the same column of b, (n). Both are (m, n).
Tensor column_dots(const Tensor& a, const Tensor& b, SourceLine where = SourceLine::current());

/// Multiplies row i by factors[i]. `factors` is (m).
Tensor scale_rows(Tensor&& t, const Tensor& factors, SourceLine where = SourceLine::current());
/// Multiplies column c by factors[c]. `factors` is (n).
Tensor scale_columns(Tensor&& t, const Tensor& factors, SourceLine where = SourceLine::current());
/// Divides row i by divisors[i]. `divisors` is (m). A row whose divisor is 0 becomes 0: in attention, this is a
/// query that may attend to no key.
Tensor divide_rows(Tensor&& t, const Tensor& divisors, SourceLine where = SourceLine::current());
/// Adds `row` (n) to each row: row[c] to every element of column c.
Tensor add_to_rows(Tensor&& t, const Tensor& row, SourceLine where = SourceLine::current());
/// Adds `column` (m) to each column: column[i] to every element of row i.
Tensor add_to_columns(Tensor&& t, const Tensor& column, SourceLine where = SourceLine::current());
/// @}

/// \name Norms and gates: functions of single elements
/// Tensors have any shape. A backward function takes dh, the gradient with respect to the result, and returns
/// dz, the gradient with respect to the argument, in the memory of dh. The backward functions of silu and gelu
/// also take the argument z, so there are forms of silu and gelu that leave z as it is. Those of sigmoid and
/// hyperbolic_tangent take the result h.
/// @{

/// Rounds to the nearest multiple of `unit`, ties to the even multiple. `unit` is a power of two, so the result
/// is exact, or 0 for no rounding. Then clamps to [-limit, limit]; a NaN stays.
/// \throws Error argument for any other unit, and for a limit that is negative or NaN.
Tensor round_to(Tensor&& t, float unit, SourceLine where = SourceLine::current());
Tensor round_to(Tensor&& t, float unit, float limit, SourceLine where = SourceLine::current());
/// 1 / √(factor t + epsilon).
Tensor inverse_root(Tensor&& t, float factor, float epsilon, SourceLine where = SourceLine::current());

/// σ(z) = 1 / (1 + e^−z).
Tensor sigmoid(Tensor&& z, SourceLine where = SourceLine::current());
/// dz = dh h (1 − h), where h = σ(z).
Tensor sigmoid_backward(Tensor&& dh, const Tensor& h, SourceLine where = SourceLine::current());
/// tanh(z).
Tensor hyperbolic_tangent(Tensor&& z, SourceLine where = SourceLine::current());
/// dz = dh (1 − h²), where h = tanh(z).
Tensor hyperbolic_tangent_backward(Tensor&& dh, const Tensor& h, SourceLine where = SourceLine::current());
/// z σ(z).
Tensor silu(const Tensor& z, SourceLine where = SourceLine::current());
Tensor silu(Tensor&& z, SourceLine where = SourceLine::current());
/// dz = dh σ(z) (1 + z σ(−z)).
Tensor silu_backward(Tensor&& dh, const Tensor& z, SourceLine where = SourceLine::current());
/// z (1 + tanh u) / 2 with u = √(2/π) (z + 0.044715 z³) (Hendrycks and Gimpel 2016), computed as z σ(2u).
Tensor gelu(const Tensor& z, SourceLine where = SourceLine::current());
Tensor gelu(Tensor&& z, SourceLine where = SourceLine::current());
/// dz = dh (σ(2u) + z σ(2u) σ(−2u) 2 du/dz).
Tensor gelu_backward(Tensor&& dh, const Tensor& z, SourceLine where = SourceLine::current());
/// @}

/// \name Attention
/// Positions lie in the host's memory.
/// @{

enum class ExponentialBase { e, two };
/// base^(z − largest[i]) for each element of row i, in the memory of z (m, n). `largest` is (m). An element
/// -infinity gives 0, also where largest[i] is -infinity. With base 2, integer exponents give exact powers of
/// two, down to 2^-149. With base e, a power below 2^-126 may be 0.
Tensor exponentials(Tensor&& z, const Tensor& largest, ExponentialBase base,
                    SourceLine where = SourceLine::current());
/// The power of a score s(i, c) is base^(scale · s), if i + first <= c <= i + last, and otherwise 0. Causal
/// masks and sliding windows are such bands.
struct ScoreRule {
  float scale;
  Index first, last;
  ExponentialBase base;
};
/// Powers divided by base^largest, for the row's largest exponent. It is -infinity in a row without powers.
struct ScorePowers {
  Tensor powers;         ///< (b, m, n), in the memory of the scores
  Tensor largest, sums;  ///< (b m), of each row of powers
};
/// The powers of scores, a stack (b, m, n). `at_least` (b m) are the largest exponents of other scores, if
/// there are any: `largest` is no less.
ScorePowers powers_of_scores(Tensor&& scores, const ScoreRule& rule, const Tensor* at_least = nullptr,
                             SourceLine where = SourceLine::current());
/// The softmax of scores (b, m, n) in their memory: powers / base^largest / sums, or 0 where `sums` is 0: a
/// query that may attend to no key. `largest` and `sums` are (b m), of all scores.
Tensor softmax_of_scores(Tensor&& scores, const ScoreRule& rule, const Tensor& largest, const Tensor& sums,
                         SourceLine where = SourceLine::current());
/// ds = factor · p ⊙ (dp − dots), with a number of `dots` (b m) for each row, in the memory of dp. p and dp
/// are (b, m, n).
Tensor softmax_of_scores_backward(Tensor&& dp, const Tensor& p, const Tensor& dots, float factor,
                                  SourceLine where = SourceLine::current());

/// Some rows of some heads of some sequences of a matrix (S n, heads · d), which has n rows of each of S sequences.
struct HeadBlock {
  Index all_sequences;  ///< S
  Range sequences;
  Range rows;  ///< of each sequence
  Index head_dim;
  std::vector<Index> heads;  ///< a head may occur more than once
};
/// The block as a stack of matrices (rows, d): the heads of the first sequence, those of the second one, ...
Tensor stack_heads(const Tensor& t, const HeadBlock& block, SourceLine where = SourceLine::current());
/// The inverse of stack_heads: adds each matrix of a stack to the place of its head in `into`, in ascending order.
void add_heads(const Tensor& stack, const HeadBlock& block, Tensor& into,
               SourceLine where = SourceLine::current());

/// The rotary embedding (Su et al. 2021), with the pairs of Llama and Mistral. t is (m, heads · d), d = head_dim.
/// In each head of row i, elements j and j + d/2 are rotated by the angle positions[i mod n] · base^(−2j/d), where
/// n is the number of positions: t has the rows of one or several sequences. Computed in float64 and rounded once.
/// \throws Error argument when n does not divide m, or head_dim is odd or does not divide t's columns.
Tensor rotate(Tensor&& t, std::span<const Index> positions, Index head_dim, double base,
              SourceLine where = SourceLine::current());
/// The gradient of rotate, which is also its inverse: it rotates by the negative angles, in the memory of dt.
Tensor rotate_backward(Tensor&& dt, std::span<const Index> positions, Index head_dim, double base,
                       SourceLine where = SourceLine::current());
/// @}

/// \name Embeddings and labels
/// no_slot marks a token or a label that another device has. combine_rows looks up the embeddings of tokens, and
/// take_columns the scores of labels.
/// @{

/// Adds row i of `rows` (k, d) to row at[i] of `into` (n, d), in ascending i. Indices may repeat. Rows with
/// no_slot are skipped. It is the gradient of an embedding.
void scatter_add_rows(const Tensor& rows, const Indices& at, Tensor& into,
                      SourceLine where = SourceLine::current());
/// The loss of each row of logits, (m, 1): largest[i] + log(sums[i]) − of_labels(i, 0), and 0 where labels[i] is
/// negative. The logarithm is to the base. Computed in float64 and rounded once. `largest` and `sums` are (m).
Tensor losses_of_labels(const Tensor& largest, const Tensor& sums, const Tensor& of_labels,
                        const Indices& labels, ExponentialBase base,
                        SourceLine where = SourceLine::current());
/// Subtracts values(i, r) from t(i, columns[i k + r]), where `values` is (m, k) and t is (m, n). The columns of
/// one row differ. Entries with no_slot are skipped.
Tensor subtract_at_columns(Tensor&& t, const Indices& columns, const Tensor& values,
                           SourceLine where = SourceLine::current());
/// @}

}  // namespace shard
