// Embeddings of positions and of tokens, and labels.

#include <cmath>

#include "engine/device/layer_operations.hpp"
#include "tests/operations/small_tensors.hpp"

RUNS_ON(.on_cuda = {1});

namespace shard::testing {

namespace {

/// Element c of a row, rotated by the definition in float64.
double rotated(const HostTensor& t, Index row, Index c, Index position, Index d, double base) {
  const Index j = c % d % (d / 2);
  const double angle =
      static_cast<double>(position) * std::pow(base, -2 * static_cast<double>(j) / static_cast<double>(d));
  const bool is_first = c % d < d / 2;
  const double other = at(t, {row, is_first ? c + d / 2 : c - d / 2});
  return at(t, {row, c}) * std::cos(angle) + (is_first ? -other : other) * std::sin(angle);
}

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  const Values x = a.to_host(), y = b.to_host();
  for (std::size_t i = 0; i < x.size(); ++i) sum += double{x[i]} * y[i];
  return sum;
}

}  // namespace

TEST_CASE("rotate, against float64: each head in pairs of halves, slower from pair to pair") {
  const Indices positions = {0, 1, 4095};
  for (Index d : {2, 4, 6}) {
    CAPTURE(d);
    const HostTensor t = reals({3, 12}, 0);
    const HostTensor given = to_host(rotate(to_device(t), positions, d, 10000));
    CHECK(given.shape == t.shape);
    for (Index row = 0; row < 3; ++row)
      for (Index c = 0; c < 12; ++c) {
        const double expected = rotated(t, row, c, positions[static_cast<std::size_t>(row)], d, 10000);
        CHECK(std::abs(at(given, {row, c}) - expected) <= 0x1p-24 * std::abs(expected) + 0x1p-38);
      }
  }
}

TEST_CASE("rotate turns counterclockwise, and leaves position 0") {
  const Values turned = rotate(matrix(2, 4, {1, 2, 3, 4, 1, 0, 0, 0}), Indices{0, 1}, 4, 100).to_host();
  CHECK(Values(turned.begin(), turned.begin() + 4) == Values{1, 2, 3, 4});
  CHECK(turned[4] == static_cast<float>(std::cos(1.0)));
  CHECK(turned[6] == static_cast<float>(std::sin(1.0)));
  const Values of_two_sequences =
      rotate(matrix(4, 2, {1, 0, 1, 0, 1, 0, 1, 0}), Indices{0, 1}, 2, 100).to_host();
  CHECK(of_two_sequences == Values{1, 0, turned[4], turned[6], 1, 0, turned[4], turned[6]});
  CHECK(rotate(Tensor({0, 4}), {}, 2, 100).shape() == Shape{0, 4});
  CHECK(rotate(Tensor({2, 0}), Indices{0, 1}, 2, 100).shape() == Shape{2, 0});
}

TEST_CASE("rotate_backward is the gradient of rotate, and its inverse") {
  const HostTensor x = reals({3, 8}, 0), dy = reals({3, 8}, 1);
  const Indices positions = {5, 0, 77};
  // Rotations are linear, so ⟨dy, rotate(x)⟩ = ⟨rotate_backward(dy), x⟩. 24 terms of at most √2 · √2.
  CHECK(std::abs(dot(to_device(dy), rotate(to_device(x), positions, 4, 500)) -
                 dot(rotate_backward(to_device(dy), positions, 4, 500), to_device(x))) <= 24 * 2 * 0x1p-23);
  const Values again = rotate_backward(rotate(to_device(x), positions, 4, 500), positions, 4, 500).to_host();
  for (std::size_t i = 0; i < again.size(); ++i) CHECK(std::abs(again[i] - x.values[i]) <= 0x1p-22);
}

TEST_CASE("rotated queries and keys see the difference of their positions alone") {
  const HostTensor q = reals({1, 8}, 0), k = reals({1, 8}, 1);
  auto score = [&](Index of_query, Index of_key) {
    return dot(rotate(to_device(q), Indices{of_query}, 8, 10000),
               rotate(to_device(k), Indices{of_key}, 8, 10000));
  };
  CHECK(std::abs(score(7, 4) - score(1003, 1000)) <= 8 * 4 * 0x1p-23);
  CHECK(std::abs(score(7, 4) - score(7, 5)) > 0.01);
}

TEST_CASE("rotate refuses heads that do not fit") {
  const Indices two = {0, 1};
  for (Index head_dim : {0, -2, 3, 4})
    REFUSED("rotate: expected an even head_dim that divides the columns of (2, 6), given " +
                std::to_string(head_dim),
            rotate(Tensor({2, 6}), two, head_dim, 100));
  REFUSED("rotate_backward: expected positions whose number divides the rows of (3, 6), given 2",
          rotate_backward(Tensor({3, 6}), two, 2, 100));
  REFUSED("rotate: expected positions whose number divides the rows of (3, 6), given 0",
          rotate(Tensor({3, 6}), {}, 2, 100));
  REFUSED("rotate: expected a matrix, given (2,)", rotate(Tensor({2}), two, 2, 100));
  REFUSED("rotate: expected a finite base above 0, given 0", rotate(Tensor({2, 6}), two, 2, 0));
  REFUSED("rotate: expected a finite base above 0, given inf", rotate(Tensor({2, 6}), two, 2, HUGE_VAL));
}

TEST_CASE("scatter_add_rows adds rows that may meet, and nothing for no_slot") {
  const Tensor rows = matrix(5, 2, {1, 2, 10, 20, 9, 9, 100, 200, 1000, 2000});
  Tensor into = matrix(4, 2, {1, 1, 2, 2, 3, 3, 4, 4});
  scatter_add_rows(rows, Indices{3, 0, no_slot, 3, 2}, into);
  CHECK(difference(into, {{4, 2}, {11, 21, 2, 2, 1003, 2003, 105, 206}}) == "");
  scatter_add_rows(Tensor({0, 2}), {}, into);
  scatter_add_rows(Tensor({1, 2}), Indices{no_slot}, into);
  CHECK(difference(into, {{4, 2}, {11, 21, 2, 2, 1003, 2003, 105, 206}}) == "");
  Tensor none({0, 2});
  scatter_add_rows(rows, Indices(5, no_slot), none);
  CHECK(none.shape() == Shape{0, 2});
}

TEST_CASE("scatter_add_rows adds in ascending order, to what is there") {
  Tensor into = matrix(2, 1, {0x1p24F, 0});
  scatter_add_rows(matrix(4, 1, {1, 5, 1, -0x1p24F}), Indices{0, 1, 0, 0}, into);
  CHECK(into.to_host() == Values{0, 5});  // another order of summation gives 1 or 2
  Tensor one = matrix(1, 1, {2});
  scatter_add_rows(matrix(1, 1, {3}), Indices{0}, one);
  CHECK(one.to_host() == Values{5});
}

TEST_CASE("scatter_add_rows is the gradient of gather_rows") {
  const HostTensor table = integers({5, 3}, 0), dy = integers({4, 3}, 1);
  const Indices tokens = {4, 1, 4, 0};
  Tensor dtable({5, 3});
  scatter_add_rows(to_device(dy), tokens, dtable);
  CHECK(dot(to_device(dy), gather_rows(to_device(table), tokens)) == dot(dtable, to_device(table)));
}

TEST_CASE("scatter_add_rows refuses rows that do not fit") {
  Tensor into({4, 2}), flat({4});
  REFUSED("scatter_add_rows: expected rows of the length of those of (4, 2), given (1, 3)",
          scatter_add_rows(Tensor({1, 3}), Indices{0}, into));
  REFUSED("scatter_add_rows: expected 2 indices, one for each row of (2, 2), given 1",
          scatter_add_rows(Tensor({2, 2}), Indices{0}, into));
  REFUSED("scatter_add_rows: expected indices from 0 to below 4, given 4",
          scatter_add_rows(Tensor({1, 2}), Indices{4}, into));
  REFUSED("scatter_add_rows: expected indices from 0 to below 4, given -2",
          scatter_add_rows(Tensor({1, 2}), Indices{-2}, into));
  REFUSED("scatter_add_rows: expected a matrix, given (2,)", scatter_add_rows(Tensor({2}), Indices{0}, into));
  REFUSED("scatter_add_rows: expected a matrix, given (4,)",
          scatter_add_rows(Tensor({1, 2}), Indices{0}, flat));
}

TEST_CASE("losses of labels: in float64, rounded once, and 0 for a row without a label") {
  const Tensor largest = Tensor::from_host({3}, Values{2, 0x1p24F, 5}),
               of_labels = matrix(3, 1, {-1, 0x1p24F, 5});
  const Tensor sums = Tensor::from_host({3}, Values{8, 3, 0});
  const Indices labels = {0, 7, -100};
  CHECK(losses_of_labels(largest, sums, of_labels, labels, ExponentialBase::two).to_host() ==
        Values{6, std::log2(3.0F), 0});
  CHECK(losses_of_labels(largest, sums, of_labels, labels, ExponentialBase::e).to_host() ==
        Values{static_cast<float>(3 + std::log(8.0)), static_cast<float>(std::log(3.0)), 0});
  REFUSED("losses_of_labels: expected (3, 1), given (3,)",
          losses_of_labels(largest, sums, sums, labels, ExponentialBase::e));
  REFUSED("expected (3,), one number for each row of (3, 1), given (2,)",
          losses_of_labels(Tensor({2}), sums, of_labels, labels, ExponentialBase::e));
  REFUSED("expected (3,), one number for each row of (3, 1), given (3, 1)",
          losses_of_labels(largest, of_labels, of_labels, labels, ExponentialBase::e));
}

TEST_CASE("subtract_at_columns: a number for each row, in a column of its own") {
  auto ones = [] { return matrix(3, 3, Values(9, 1)); };
  CHECK(difference(subtract_at_columns(ones(), Indices{2, no_slot, 0}, matrix(3, 1, {5, 7, 3})),
                   {{3, 3}, {1, 1, -4, 1, 1, 1, -2, 1, 1}}) == "");
  CHECK(difference(
            subtract_at_columns(ones(), Indices{2, 1, 0, 2, 1, no_slot}, matrix(3, 2, {1, 2, 3, 4, 5, 6})),
            {{3, 3}, {1, -1, 0, -2, 1, -3, 1, -4, 1}}) == "");
  CHECK(subtract_at_columns(Tensor({0, 3}), {}, Tensor({0, 1})).shape() == Shape{0, 3});
  CHECK(subtract_at_columns(Tensor({2, 0}), Indices{no_slot, no_slot}, Tensor({2, 1})).shape() ==
        Shape{2, 0});
  CHECK(subtract_at_columns(ones(), {}, Tensor({3, 0})).to_host() == Values(9, 1));
}

TEST_CASE("subtract_at_columns refuses what take_columns would not take") {
  const Tensor values({2, 1});
  auto t = [] { return Tensor({2, 3}); };
  REFUSED("subtract_at_columns: expected indices from 0 to below 3, given 3",
          subtract_at_columns(t(), Indices{0, 3}, values));
  REFUSED("subtract_at_columns: expected indices from 0 to below 3, given -2",
          subtract_at_columns(t(), Indices{0, -2}, values));
  REFUSED("subtract_at_columns: expected 2 columns, one for each of the values (2, 1), given 1",
          subtract_at_columns(t(), Indices{0}, values));
  REFUSED("subtract_at_columns: expected values for each row of (2, 3), given (3, 1)",
          subtract_at_columns(t(), Indices{0, 0, 0}, Tensor({3, 1})));
  REFUSED("subtract_at_columns: expected a matrix, given (2,)",
          subtract_at_columns(Tensor({2}), Indices{0, 0}, values));
  REFUSED("subtract_at_columns: expected a matrix, given (2,)",
          subtract_at_columns(t(), Indices{0, 0}, Tensor({2})));
}

}  // namespace shard::testing
