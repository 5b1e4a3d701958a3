/// Operations by rows, on small numbers whose results are easy to compute by hand.

#include <bit>
#include <cmath>
#include <limits>

#include "engine/device/books/ledger.hpp"
#include "engine/device/device.hpp"
#include "tests/operations/small_tensors.hpp"

namespace shard::testing {

RUNS_ON(.on_cuda = {1});

namespace {

constexpr Index none = no_slot;

}  // namespace

TEST_CASE("softmax: rows sum to 1, ties are equal, what is far below counts nothing") {
  CHECK(softmax(matrix(3, 4, {5, 5, -123, -251, 7, 7, 7, 7, 1000, 0, -1000, 0})).to_host() ==
        Values{0.5F, 0.5F, 0, 0, 0.25F, 0.25F, 0.25F, 0.25F, 1, 0, 0, 0});
  Values p = softmax(matrix(1, 3, {0, std::log(2.0F), std::log(5.0F)})).to_host();
  CHECK(std::abs(p[0] - 0.125F) < 1e-6F);
  CHECK(std::abs(p[1] - 0.25F) < 1e-6F);
  CHECK(std::abs(p[2] - 0.625F) < 1e-6F);
  CHECK(softmax(matrix(2, 1, {-3, 8})).to_host() == Values{1, 1});
  CHECK(softmax(Tensor({0, 4})).shape() == Shape{0, 4});
  CHECK(softmax(Tensor({3, 0})).shape() == Shape{3, 0});
  REFUSED("", softmax(Tensor({4})));
}

TEST_CASE("softmax_backward: p (dp - sum p dp), row by row") {
  Tensor p = matrix(2, 4, {0.5F, 0.25F, 0.25F, 0, 0, 1, 0, 0});
  CHECK(softmax_backward(matrix(2, 4, {8, 4, -4, 99, 1, 2, 3, 4}), p).to_host() ==
        Values{2, 0, -2, 0, 0, 0, 0, 0});
  REFUSED("", softmax_backward(Tensor({2, 3}), p));
}

TEST_CASE("softmax_backward is the derivative of softmax") {
  const Values z = {0.3F, -0.7F, 1.1F}, dp = {0.5F, -1.5F, 2};
  auto value = [&](const Values& at) {  // Σ dp p, in float64
    double sum = 0, weighted = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      sum += std::exp(double{at[i]});
      weighted += double{dp[i]} * std::exp(double{at[i]});
    }
    return weighted / sum;
  };
  Tensor p = softmax(matrix(1, 3, z));
  Values dz = softmax_backward(matrix(1, 3, dp), p).to_host();
  for (std::size_t i = 0; i < 3; ++i) {
    constexpr float h = 0x1p-10F;
    Values above = z, below = z;
    above[i] += h;
    below[i] -= h;
    // Central differences are off by h²/6 times a third derivative of at most 6 Σ|dp|, and by the rounding of
    // p to float32.
    CHECK(std::abs(dz[i] - (value(above) - value(below)) / (double{above[i]} - below[i])) < 4 * h * h + 1e-6);
  }
}

TEST_CASE("add_to_rows adds one row to each") {
  CHECK(add_to_rows(matrix(2, 3, {1, 2, 3, 4, 5, 6}), Values{10, 20, 30}).to_host() ==
        Values{11, 22, 33, 14, 25, 36});
  CHECK(add_to_rows(Tensor({0, 2}), Values{1, 2}).shape() == Shape{0, 2});
  REFUSED("", add_to_rows(Tensor({2, 3}), Values{1, 2}));
}

TEST_CASE("top_k: the largest first, of equal ones the lower column") {
  Tensor t = matrix(3, 4, {1, 4, 2, 3, 5, 5, 5, 5, -1, -2, -1, -2});
  auto columns = [&](Index k) -> Indices { return top_k(t, k); };
  CHECK(columns(1) == Indices{1, 0, 0});
  CHECK(columns(2) == Indices{1, 3, 0, 1, 0, 2});
  CHECK(columns(4) == Indices{1, 3, 2, 0, 0, 1, 2, 3, 0, 2, 1, 3});
  CHECK(Indices(top_k(Tensor({0, 4}), 2)).empty());
  CHECK(Indices(top_k(matrix(1, 3, {nan, nan, nan}), 3)) == Indices{0, 1, 2});  // any columns are right
  CHECK(top_k_counts(t, 2).to_host() == Values{2, 2, 1, 1});
  CHECK(top_k_counts(Tensor({0, 4}), 2).to_host() == Values{0, 0, 0, 0});
  REFUSED("", top_k(t, 0));
  REFUSED("", top_k(t, 5));
}

TEST_CASE("take_columns and put_columns are each other's reverse") {
  Tensor t = matrix(2, 3, {1, 2, 3, 4, 5, 6});
  const Indices columns = {2, 0, 1, 2};
  Tensor taken = take_columns(t, columns, 2);
  CHECK(taken.shape() == Shape{2, 2});
  CHECK(taken.to_host() == Values{3, 1, 5, 6});
  CHECK(put_columns(taken, columns, 3).to_host() == Values{1, 0, 3, 0, 5, 6});
  CHECK(take_columns(Tensor({0, 3}), Indices{}, 2).shape() == Shape{0, 2});
  REFUSED("", take_columns(t, Indices{0, 1, 2}, 2));
  REFUSED("", take_columns(t, Indices{0, 3}, 1));
  REFUSED("", take_columns(t, Indices{0, -2}, 1));
  REFUSED("", put_columns(taken, Indices{0, 1}, 3));
  REFUSED("", put_columns(taken, Indices{0, 1, -1, 1}, 3));
}

TEST_CASE("take_columns takes 0 where there is no column") {
  const Indices columns = {none, 0, 2, none};
  CHECK(take_columns(matrix(2, 3, {1, 2, 3, 4, 5, 6}), columns, 2).to_host() == Values{0, 1, 6, 0});
  CHECK(take_columns(Tensor({2, 0}), Indices{none, none}, 1).to_host() == Values{0, 0});
}

TEST_CASE("gather_rows and scatter_rows are each other's reverse") {
  Tensor t = matrix(3, 2, {1, 2, 3, 4, 5, 6});
  Tensor rows = gather_rows(t, Indices{2, 0, 2});
  CHECK(rows.shape() == Shape{3, 2});
  CHECK(rows.to_host() == Values{5, 6, 1, 2, 5, 6});
  CHECK(gather_rows(t, Indices{}).shape() == Shape{0, 2});
  CHECK(gather_rows(Tensor({0, 2}), Indices{}).shape() == Shape{0, 2});
  scatter_rows(matrix(2, 2, {-1, -2, -3, -4}), Indices{2, 0}, t);
  CHECK(t.to_host() == Values{-3, -4, 3, 4, -1, -2});
  REFUSED("", gather_rows(t, Indices{3}));
  REFUSED("", gather_rows(t, Indices{none}));
  REFUSED("", scatter_rows(rows, Indices{0, 1}, t));
  REFUSED("", scatter_rows(Tensor({1, 3}), Indices{0}, t));
  REFUSED("", scatter_rows(Tensor({2, 2}), Indices{0, 3}, t));
  CHECK(t.to_host() == Values{-3, -4, 3, 4, -1, -2});
}

TEST_CASE("scale_rows: each row by an element of its own") {
  Tensor factors = matrix(2, 2, {2, 3, 5, 7});
  CHECK(scale_rows(matrix(3, 2, {1, 2, 3, 4, 5, 6}), factors, Indices{3, 0, 3}).to_host() ==
        Values{7, 14, 6, 8, 35, 42});
  REFUSED("", scale_rows(Tensor({2, 2}), factors, Indices{0, 4}));
  REFUSED("", scale_rows(Tensor({2, 2}), factors, Indices{0}));
}

TEST_CASE("combine_rows: weighted sums of rows in slots, nothing for an empty slot") {
  Tensor rows = matrix(3, 2, {1, 2, 10, 20, 100, 200});
  const Indices slots = {0, 2, none, 1, none, none};
  CHECK(combine_rows(rows, slots, matrix(3, 2, {2, 3, 5, 7, 11, 13})).to_host() ==
        Values{302, 604, 70, 140, 0, 0});
  CHECK(combine_rows(rows, slots, 2).to_host() == Values{101, 202, 10, 20, 0, 0});
  CHECK(combine_rows(Tensor({0, 2}), Indices{none}, 1).to_host() == Values{0, 0});
  CHECK(combine_rows(rows, Indices{}, 2).shape() == Shape{0, 2});
  CHECK(combine_rows(rows, Indices{}, Tensor({3, 0})).to_host() == Values{0, 0, 0, 0, 0, 0});
  REFUSED("", combine_rows(rows, slots, Tensor({2, 2})));
  REFUSED("", combine_rows(rows, Indices{3}, 1));
  REFUSED("", combine_rows(rows, Indices{-2}, 1));
  REFUSED("", combine_rows(rows, slots, 0));
}

TEST_CASE("dot_rows: the gradient of combine_rows by its weights") {
  Tensor rows = matrix(3, 2, {1, 2, 10, 20, 100, 200});
  Tensor t = matrix(3, 2, {1, 1, 2, -1, 3, 3});
  const Indices slots = {0, 2, none, 1, none, none};
  Tensor dots = dot_rows(t, rows, slots, 2);
  CHECK(dots.shape() == Shape{3, 2});
  CHECK(dots.to_host() == Values{3, 300, 0, 0, 0, 0});
  CHECK(dot_rows(Tensor({0, 2}), Tensor({0, 2}), Indices{}, 2).shape() == Shape{0, 2});
  REFUSED("", dot_rows(t, rows, Indices{0, 1, 2}, 2));
  REFUSED("", dot_rows(t, rows, Indices{0, 1, 3}, 1));
  REFUSED("", dot_rows(t, Tensor({1, 3}), Indices{0, 0, 0}, 1));
}

namespace {

/// These numbers as a product reads them: each is multiplied by 1.
Values as_read(Precision precision, const Values& values) {
  set_precision(precision);
  Tensor product = matmul(matrix(static_cast<Index>(values.size()), 1, values), matrix(1, 1, {1}));
  set_precision(Precision::float32);
  return product.to_host();
}

}  // namespace

TEST_CASE("products in bf16 round their operands to 8 bits, of two as near to the even one") {
  CHECK(as_read(Precision::bf16,
                {1 + 0x1p-7F, 1 + 0x1p-8F, 1 + 0x3p-8F, 1 + 0x1.01p-8F, -1 - 0x3p-9F, 0x1p-130F}) ==
        Values{1 + 0x1p-7F, 1, 1 + 0x1p-6F, 1 + 0x1p-7F, -1 - 0x1p-7F, 0x1p-130F});
  CHECK(as_read(Precision::bf16, {3, -0.0F, 255, 257, 0x1.fffffep127F}) ==
        Values{3, 0, 255, 256, std::numeric_limits<float>::infinity()});
  // NaNs that would become other values by rounding, or by leaving bits out.
  const Values special = as_read(
      Precision::bf16, {std::bit_cast<float>(0x7fffffffU), std::bit_cast<float>(0xff800001U), -HUGE_VALF});
  CHECK(std::isnan(special[0]));
  CHECK(std::isnan(special[1]));
  CHECK(special[2] == -HUGE_VALF);
}

TEST_CASE("products in bf16 sum in float32, read transposed operands and add to a tensor") {
  const Tensor a = matrix(2, 3, {257, 1, 0, 3, 1 + 0x1p-8F, 5});
  const Tensor b = matrix(3, 2, {1, 2, 1, 1, 4, 0});
  set_precision(Precision::bf16);
  const Values sums = matmul(a, b).to_host();
  const Values turned = matmul(transposed(b), transposed(a)).to_host();
  Tensor c = matrix(2, 2, {0x1p-8F, 0, 0, 0});  // a sum is not rounded
  matmul_accumulate(a, b, c);
  const Tensor ones = matrix(33, 33, Values(33 * 33, 1));  // large: the memory is too small for copies
  const Values counts = matmul(ones, ones).to_host();
  set_precision(Precision::float32);
  CHECK(counts == Values(33 * 33, 33));
  CHECK(sums == Values{257, 513, 24, 7});
  CHECK(turned == Values{257, 24, 513, 7});
  CHECK(c.to_host() == Values{257 + 0x1p-8F, 513, 24, 7});
}

TEST_CASE("a factor in bf16 gives the products of one that products round, also transposed, with odd rows") {
  const Tensor a = matrix(2, 3, {1, 257, -3.01F, 0x1p-9F, 5, 1 + 0x1p-8F});
  const Tensor b = matrix(3, 3, {1, 2, 3, -0.3F, 1000, 7, 8, INFINITY, 1.01F});
  set_precision(Precision::bf16);
  const Tensor pairs = to_bf16(b);
  CHECK(pairs.shape() == Shape{3, 2});
  for (bool is_transposed : {false, true})
    CHECK(matmul(a, Operand(pairs, is_transposed, 3)).to_host() ==
          matmul(a, Operand(b, is_transposed)).to_host());
  const Tensor wide = to_device(integers({3, 1025}, 0));  // a GPU divides long rows
  const Tensor wide_pairs = to_bf16(wide);
  CHECK(matmul(a, Operand(wide_pairs, false, 1025)).to_host() == matmul(a, wide).to_host());
  REFUSED("", matmul(a, Operand(pairs, false, 5)));
  set_precision(Precision::float32);
  REFUSED("", matmul(a, Operand(pairs, false, 3)));
}

TEST_CASE("addends in bf16 are added in float32, the first one first, with odd rows") {
  // 2^-8 and 1 + 2^-8 lie between two numbers of 8 bits, or in the last of them.
  const Values values = {1,           257,    -3.01F, 0x1p-30F,
                         5,           1e30F,  // the first matrix, (2, 3)
                         1,           258,    3,      1 + 3 * 0x1p-8F,
                         -5,          -1e30F,  // the second
                         0x1p-24F,    1,      -1,     -1,
                         1 + 0x1p-8F, 1};  // the third
  const Tensor sums = sum_of_bf16(to_bf16(matrix(6, 3, values)), 3, 3);
  CHECK(sums.shape() == Shape{2, 3});
  CHECK(sums.to_host() == Values{2, 515, -1.015625F, 0.015625F, 1, 1});
  const Tensor wide = to_device(integers({3, 1025}, 0));
  CHECK(sum_of_bf16(to_bf16(wide), 3, 1025).to_host() == column_sums(wide).to_host());
  REFUSED("sum_of_bf16: expected 2 matrices of 5 columns in pairs, given (4, 2)",
          sum_of_bf16(Tensor({4, 2}), 2, 5));
  REFUSED("", sum_of_bf16(Tensor({3, 2}), 2, 3));
}

TEST_CASE("a product in bf16 reads what a parameter is now, however it has changed") {
  Tensor w = matrix(2, 1, {1, 257});
  w.charge_to(Purpose::parameters);
  const Tensor one = matrix(1, 1, {1});
  auto read = [&] {
    set_precision(Precision::bf16);
    const Values values = matmul(w, one).to_host();
    set_precision(Precision::float32);
    return values;
  };
  CHECK(read() == Values{1, 256});
  CHECK(read() == Values{1, 256});
  sgd_update(Rows(w), matrix(2, 1, {1, 1}), 2);
  CHECK(read() == Values{-1, 255});
  w.write(0, 1, 2, Values{7});
  CHECK(read() == Values{-1, 7});
  CHECK(w.to_host() == Values{-1, 7});
  w = scale(std::move(w), 2);
  CHECK(read() == Values{-2, 14});
}

TEST_CASE("a small tensor from the host is read back as operations have left it") {
  Tensor t = matrix(1, 3, {1, 2, 3});
  CHECK(t.to_host() == Values{1, 2, 3});
  Values last(2);
  t.read(1, last);
  CHECK(last == Values{2, 3});
  t = relu(subtract(std::move(t), matrix(1, 3, {0, 3, 1})));
  CHECK(t.to_host() == Values{1, 0, 2});
  t = matrix(1, 3, {4, 5, 6});
  assign(Rows(t), matrix(1, 3, {7, 8, 9}));
  CHECK(t.to_host() == Values{7, 8, 9});
}

TEST_CASE("what is read later is as it was") {
  Tensor t = relu(matrix(1, 2, {1, 2}));
  const Later<Values> elements = t.to_host_later();
  const Later<double> squares = sum_of_squares(t);
  t = scale(std::move(t), 3);
  CHECK(sum_of_squares(t) == 45);
  CHECK(Values(elements) == Values{1, 2});
  CHECK(squares == 5);
}

TEST_CASE("products in tf32 keep 11 bits at least, those in float32 all") {
  const Values values = {1 + 0x1p-10F, 1 + 0x1p-23F, -1 - 0x1p-12F, 3 + 0x1p-9F};
  CHECK(as_read(Precision::float32, values) == values);
  const Values read = as_read(Precision::tf32, values);  // a library may keep more bits, and round either way
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(std::abs(read[i] - values[i]) <= 0x1p-10F);
  CHECK(read[0] == values[0]);
  CHECK(read[3] == values[3]);
}

TEST_CASE("operations by rows want matrices") {
  Tensor m = matrix(1, 2, {1, 2});
  const Tensor box({1, 2, 1});  // with valid sizes
  auto another = [&] { return box.clone(); };
  REFUSED("", softmax(another()));
  REFUSED("", softmax_backward(another(), box));
  REFUSED("", add_to_rows(another(), Values{1, 2}));
  REFUSED("", top_k(box, 1));
  REFUSED("", take_columns(box, Indices{0}, 1));
  REFUSED("", put_columns(box, Indices{0, 1}, 2));
  REFUSED("", gather_rows(box, Indices{0}));
  REFUSED("", scatter_rows(box, Indices{0}, m));
  Tensor into = another();
  REFUSED("", scatter_rows(m, Indices{0}, into));
  REFUSED("", scale_rows(another(), m, Indices{0}));
  REFUSED("", combine_rows(box, Indices{0, 0}, m));
  REFUSED("", combine_rows(m, Indices{0, 0}, box));
  REFUSED("", combine_rows(box, Indices{0}, 1));
  REFUSED("", dot_rows(box, m, Indices{0}, 1));
  REFUSED("", dot_rows(m, box, Indices{0}, 1));
}

}  // namespace shard::testing
