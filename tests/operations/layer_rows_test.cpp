// Sums, scales and addends by rows and by columns, and the rows of attention's scores: on numbers that are
// easy to compute by hand, and compared with definitions in float64.

#include <cmath>
#include <numeric>

#include "engine/device/layer_operations.hpp"
#include "tests/operations/small_tensors.hpp"

RUNS_ON(.on_cuda = {1});

namespace shard::testing {

namespace {

Tensor small() {
  return matrix(2, 3, {1, 2, 3, 4, 5, 6});
}

}  // namespace

TEST_CASE("sums and dot products of rows and of columns") {
  CHECK(difference(row_sums(small()), {{2}, {6, 15}}) == "");
  CHECK(difference(column_sums(small()), {{3}, {5, 7, 9}}) == "");
  const Tensor other = matrix(2, 3, {1, -1, 2, 3, 0, -2});
  CHECK(difference(row_dots(small(), other), {{2}, {5, 0}}) == "");
  CHECK(difference(column_dots(small(), other), {{3}, {13, -2, -6}}) == "");
  CHECK(difference(row_sums(matrix(1, 3, {1, 2, 3})), {{1}, {6}}) == "");
  CHECK(difference(column_sums(matrix(1, 3, {1, 2, 3})), {{3}, {1, 2, 3}}) == "");
}

TEST_CASE("sums of nothing are 0") {
  CHECK(difference(row_sums(Tensor({2, 0})), {{2}, {0, 0}}) == "");
  CHECK(difference(row_sums(Tensor({0, 2})), {{0}, {}}) == "");
  CHECK(difference(column_sums(Tensor({0, 2})), {{2}, {0, 0}}) == "");
  CHECK(difference(column_sums(Tensor({2, 0})), {{0}, {}}) == "");
  CHECK(difference(row_dots(Tensor({2, 0}), Tensor({2, 0})), {{2}, {0, 0}}) == "");
  CHECK(difference(column_dots(Tensor({0, 2}), Tensor({0, 2})), {{2}, {0, 0}}) == "");
}

TEST_CASE("sums of columns of many rows") {
  const HostTensor many = integers({1000, 3}, 2),
                   ones = tabulate({1000, 3}, [](const Place&) { return 1.0F; });
  Values expected(3);
  for (Index i = 0; i < 3000; ++i)
    expected[static_cast<std::size_t>(i % 3)] += many.values[static_cast<std::size_t>(i)];
  CHECK(column_sums(to_device(many)).to_host() == expected);
  CHECK(column_dots(to_device(many), to_device(ones)).to_host() == expected);
}

TEST_CASE("dot products of real numbers, against float64") {
  const HostTensor a = reals({70, 90}, 0), b = reals({70, 90}, 1);
  const Values of_rows = row_dots(to_device(a), to_device(b)).to_host();
  const Values of_columns = column_dots(to_device(a), to_device(b)).to_host();
  for (int axis : {0, 1}) {
    const Values& given = axis == 0 ? of_rows : of_columns;
    const Index terms = axis == 0 ? 90 : 70;
    for (Index i = 0; i < static_cast<Index>(given.size()); ++i) {
      double sum = 0, magnitude = 0;
      for (Index k = 0; k < terms; ++k) {
        const Place place = axis == 0 ? Place{i, k} : Place{k, i};
        sum += double{at(a, place)} * at(b, place);
        magnitude += std::abs(double{at(a, place)} * at(b, place));
      }
      // One rounding for each product and each sum.
      CHECK(std::abs(given[static_cast<std::size_t>(i)] - sum) <=
            0x1p-24 * static_cast<double>(terms + 1) * magnitude);
    }
  }
}

TEST_CASE("row_max: the largest of each row, -infinity where there is none") {
  CHECK(difference(row_max(matrix(3, 2, {1, 2, -3, -4, -infinity, -infinity})), {{3}, {2, -3, -infinity}}) ==
        "");
  CHECK(difference(row_max(Tensor({2, 0})), {{2}, {-infinity, -infinity}}) == "");
  CHECK(difference(row_max(Tensor({0, 2})), {{0}, {}}) == "");
  CHECK(row_max(matrix(3, 2, {nan, 2, 1, nan, nan, nan})).to_host() == Values{2, 1, -infinity});
}

TEST_CASE("a factor, a divisor or an addend for each row or each column") {
  CHECK(difference(scale_rows(small(), vector({10, -1})), {{2, 3}, {10, 20, 30, -4, -5, -6}}) == "");
  CHECK(difference(scale_columns(small(), vector({10, 0, -1})), {{2, 3}, {10, 0, -3, 40, 0, -6}}) == "");
  CHECK(difference(divide_rows(small(), vector({2, -4})), {{2, 3}, {0.5F, 1, 1.5F, -1, -1.25F, -1.5F}}) ==
        "");
  CHECK(difference(add_to_rows(small(), vector({10, 20, 30})), {{2, 3}, {11, 22, 33, 14, 25, 36}}) == "");
  CHECK(difference(add_to_columns(small(), vector({10, 20})), {{2, 3}, {11, 12, 13, 24, 25, 26}}) == "");
  CHECK(scale_rows(Tensor({0, 2}), Tensor({0})).shape() == Shape{0, 2});
  CHECK(scale_columns(Tensor({0, 2}), Tensor({2})).shape() == Shape{0, 2});
  CHECK(divide_rows(Tensor({2, 0}), Tensor({2})).shape() == Shape{2, 0});
  CHECK(add_to_rows(Tensor({2, 0}), Tensor({0})).shape() == Shape{2, 0});
  CHECK(add_to_columns(Tensor({2, 0}), Tensor({2})).shape() == Shape{2, 0});
}

TEST_CASE("divide_rows: a row whose divisor is 0 becomes 0") {
  CHECK(divide_rows(matrix(3, 2, {1, 0, nan, infinity, 3, 6}), vector({0, -0.0F, 3})).to_host() ==
        Values{0, 0, 0, 0, 1, 2});
}

TEST_CASE("exponentials to base 2 of integers are exact, down to the smallest float32") {
  Values z, expected;
  for (int below = -127; below <= 150; ++below) {
    z.push_back(static_cast<float>(5 - below));
    expected.push_back(std::ldexp(1.0F, -below));  // 2^-150 lies between 0 and 2^-149, and becomes 0
  }
  z.insert(z.end(), {-1e30F, -infinity, 5 + 128, infinity});
  expected.insert(expected.end(), {0, 0, infinity, infinity});
  const auto n = static_cast<Index>(z.size());
  CHECK(exponentials(matrix(1, n, z), vector({5}), ExponentialBase::two).to_host() == expected);
  CHECK(exponentials(matrix(2, 2, {3, 2, 7, 9}), vector({3, 9}), ExponentialBase::two).to_host() ==
        Values{1, 0.5F, 0.25F, 1});
}

TEST_CASE("exponentials of real numbers, against float64") {
  const HostTensor z = tabulate(
      {4, 50}, [](const Place& p) { return static_cast<float>(p[0]) - 0.73F * static_cast<float>(p[1]); });
  const Values largest = {0, 1.5F, 2, 3.25F};
  for (const auto& [base, number] :
       {std::pair(ExponentialBase::e, std::exp(1.0)), std::pair(ExponentialBase::two, 2.0)}) {
    const Values given = exponentials(to_device(z), vector(largest), base).to_host();
    for (std::size_t i = 0; i < given.size(); ++i) {
      const double power = double{z.values[i]} - largest[i / 50], expected = std::pow(number, power);
      // The difference is rounded once, by at most 2^-24 of it. The function is off by at most two ulp.
      CHECK(std::abs(given[i] - expected) <= expected * (0x1p-24 * std::abs(power) + 0x1p-22));
    }
  }
}

TEST_CASE("exponentials of -infinity are 0, also in a row that has nothing else") {
  for (ExponentialBase base : {ExponentialBase::e, ExponentialBase::two}) {
    const Values given = exponentials(matrix(3, 2, {-infinity, 4, -infinity, -infinity, nan, 0}),
                                      vector({4, -infinity, 0}), base)
                             .to_host();
    CHECK(Values(given.begin(), given.begin() + 4) == Values{0, 1, 0, 0});
    CHECK(std::isnan(given[4]));
    CHECK(given[5] == 1);
    CHECK(exponentials(Tensor({0, 2}), Tensor({0}), base).shape() == Shape{0, 2});
    CHECK(exponentials(Tensor({2, 0}), Tensor({2}), base).shape() == Shape{2, 0});
  }
}

TEST_CASE("exponentials at the ends of float32, against float64; NaN stays NaN") {
  const Values z = {-87.3F,  -87.34F, -88, -100,  -103.9F, -105, -1e38F, 1e-40F,
                    -1e-40F, 0,       88,  88.7F, 88.722F, 89,   1e38F,  infinity};
  const auto n = static_cast<Index>(z.size());
  const Values given = exponentials(matrix(1, n, z), vector({0}), ExponentialBase::e).to_host();
  for (std::size_t i = 0; i < z.size(); ++i) {
    CAPTURE(z[i]);
    const double expected = std::exp(double{z[i]});
    if (expected > double{std::numeric_limits<float>::max()}) CHECK(given[i] == infinity);
    // Two ulp. A power below 2^-126 may be 0.
    else
      CHECK(std::abs(given[i] - expected) <= (expected < 0x1p-126 ? 0x1p-126 : expected * 0x1p-22));
  }
  for (ExponentialBase base : {ExponentialBase::e, ExponentialBase::two})
    for (float largest : {0.0F, nan})
      CHECK(std::isnan(exponentials(vector({-nan}).reshaped({1, 1}), vector({largest}), base).to_host()[0]));
}

// The CPU has vectors of 4, 8 or 16 numbers, and a rest.
TEST_CASE("rows of each length: sums, the largest number, and NaN at each place") {
  for (Index n = 1; n <= 40; ++n) {
    CAPTURE(n);
    const HostTensor a = integers({1, n}, 0), b = integers({1, n}, 1);
    float sum = 0, dot = 0;
    for (std::size_t i = 0; i < a.values.size(); ++i) sum += a.values[i], dot += a.values[i] * b.values[i];
    CHECK(row_sums(to_device(a)).to_host() == Values{sum});
    CHECK(row_dots(to_device(a), to_device(b)).to_host() == Values{dot});
    CHECK(dot_rows(to_device(a), to_device(b), shard::Indices(std::vector<Index>{0}), 1).to_host() ==
          Values{dot});
    for (std::size_t i = 0; i < a.values.size(); ++i) {
      HostTensor peak = a, broken = a;
      peak.values[i] = 1000, broken.values[i] = nan;
      CHECK(row_max(to_device(peak)).to_host() == Values{1000});
      CHECK(std::isnan(row_sums(to_device(broken)).to_host()[0]));
      CHECK(std::isnan(row_dots(to_device(broken), to_device(b)).to_host()[0]));
      for (float p : softmax(to_device(broken)).to_host()) CHECK(std::isnan(p));
      const Tensor stack = to_device(broken).reshaped({1, 1, n});
      const auto [powers, largest, sums] =
          powers_of_scores(stack.clone(), {1, -n, n, ExponentialBase::e}, nullptr);
      CHECK(std::isnan(powers.to_host()[i]));
      CHECK(std::isnan(sums.to_host()[0]));
    }
  }
}

TEST_CASE("scores have powers in a band: masks are causal, or a window") {
  auto mask = [&](Index first, Index last) {
    return powers_of_scores(Tensor({1, 3, 4}), {1, first, last, ExponentialBase::e}).powers.to_host();
  };
  CHECK(mask(-3, 1) == Values{1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1});
  CHECK(mask(0, 1) == Values{1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1});
  CHECK(mask(-4, -2) == Values{0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0});
  CHECK(mask(2, 9) == Values{0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0});
  CHECK(mask(1, 0) == Values(12, 0));
}

TEST_CASE("scores have powers in each matrix of a stack, and a softmax that may have seen others") {
  const Values z = {2, 9, nan, 4, 6, 9, -infinity, 9, 9, 6, 4, nan};
  auto scores = [&] { return Tensor::from_host({2, 2, 3}, z); };
  const ScoreRule rule{0.5F, -1, 0, ExponentialBase::two};
  const auto [powers, largest, sums] = powers_of_scores(scores(), rule);
  CHECK(difference(powers, {{2, 2, 3}, {1, 0, 0, 0.5F, 1, 0, 0, 0, 0, 1, 0.5F, 0}}) == "");
  CHECK(difference(largest, {{4}, {1, 3, -infinity, 3}}) == "");
  CHECK(difference(sums, {{4}, {1, 1.5F, 0, 1.5F}}) == "");
  const Tensor others = vector({3, 1, 0, -infinity});
  const auto [further, at_least, more] = powers_of_scores(scores(), rule, &others);
  CHECK(further.to_host() == Values{0.25F, 0, 0, 0.5F, 1, 0, 0, 0, 0, 1, 0.5F, 0});
  CHECK(at_least.to_host() == Values{3, 3, 0, 3});
  CHECK(more.to_host() == Values{0.25F, 1.5F, 0, 1.5F});
  CHECK(softmax_of_scores(scores(), rule, largest, vector({2, 1, 0, 0.5F})).to_host() ==
        Values{0.5F, 0, 0, 0.5F, 1, 0, 0, 0, 0, 2, 1, 0});
  CHECK(softmax_of_scores_backward(Tensor::from_host({1, 2, 3}, Values{1, 2, 3, 4, 5, 6}),
                                   Tensor::from_host({1, 2, 3}, Values{1, 2, 0, -1, 0.5F, 2}), vector({1, 3}),
                                   2)
            .to_host() == Values{0, 4, 0, -2, 2, 12});
}

TEST_CASE("scores to base e, against float64; and no scores") {
  const Values z = {0.3F, -1.7F, 2.2F, 0.9F};
  const ScoreRule all{0.7F, -4, 4, ExponentialBase::e};
  const auto [powers, largest, sums] = powers_of_scores(Tensor::from_host({1, 1, 4}, z), all);
  const Values given = powers.to_host();
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(std::abs(given[i] - std::exp(double{0.7F} * (double{z[i]} - double{z[2]}))) < 1e-6);
  const Values p = softmax_of_scores(Tensor::from_host({1, 1, 4}, z), all, largest, sums).to_host();
  for (std::size_t i = 0; i < 4; ++i) CHECK(p[i] == given[i] / sums.to_host()[0]);
  for (float large = 100; large < 101; large += 0.1F)  // scale z - largest, fused, would not be 0
    CHECK(powers_of_scores(Tensor::from_host({1, 1, 1}, Values{large}), all).powers.to_host() == Values{1});
  const Tensor at_least = vector({3, -infinity});
  CHECK(powers_of_scores(Tensor({1, 2, 0}), all, &at_least).largest.to_host() == Values{3, -infinity});
  CHECK(powers_of_scores(Tensor({1, 2, 0}), all).sums.to_host() == Values{0, 0});
  CHECK(softmax_of_scores(Tensor({0, 2, 3}), all, Tensor({0}), Tensor({0})).shape() == Shape{0, 2, 3});
  CHECK(softmax_of_scores_backward(Tensor({2, 1, 0}), Tensor({2, 1, 0}), Tensor({2}), 1).shape() ==
        Shape{2, 1, 0});
}

TEST_CASE("heads as a stack: those of each sequence, one behind the other, also one several times") {
  Values values(2 * 3 * 4);  // 2 sequences of 3 rows, 2 heads of 2
  std::iota(values.begin(), values.end(), 0.0F);
  const Tensor t = matrix(6, 4, values);
  const HeadBlock last_rows{2, {0, 2}, {1, 3}, 2, {1, 0, 1}};
  const Values stack = stack_heads(t, last_rows).to_host();
  CHECK(stack ==
        Values{6, 7, 10, 11, 4, 5, 8, 9, 6, 7, 10, 11, 18, 19, 22, 23, 16, 17, 20, 21, 18, 19, 22, 23});
  CHECK(difference(stack_heads(t, {2, {1, 2}, {0, 1}, 4, {0}}), {{1, 1, 4}, {12, 13, 14, 15}}) == "");
  CHECK(stack_heads(t, {2, {1, 1}, {0, 1}, 4, {0}}).shape() == Shape{0, 1, 4});
  Tensor into = matrix(6, 4, Values(24, 1));
  add_heads(Tensor::from_host({6, 2, 2}, stack), last_rows, into);
  CHECK(into.to_host() ==
        Values{1, 1, 1, 1, 5, 6, 13, 15, 9, 10, 21, 23, 1, 1, 1, 1, 17, 18, 37, 39, 21, 22, 45, 47});
  Tensor other = matrix(6, 4, Values(24, 1));
  add_heads(Tensor::from_host({1, 1, 2}, Values{5, 6}), {2, {1, 2}, {2, 3}, 2, {1}}, other);
  Values only_last(24, 1);
  only_last[22] = 6, only_last[23] = 7;
  CHECK(other.to_host() == only_last);
}

TEST_CASE("stacks of many rows, in heads of one column and of more") {
  const Index of_sequence = 150;
  const HostTensor t = integers({2 * of_sequence, 6}, 0), before = integers({2 * of_sequence, 6}, 1);
  for (Index d : {1, 3}) {
    const HeadBlock block{2, {0, 2}, {3, of_sequence}, d, {1, 0, 1}};
    const Tensor stack = stack_heads(to_device(t), block);
    Tensor sums = to_device(before);
    add_heads(stack, block, sums);
    Values stacked, added = before.values;
    for (Index s = 0; s < 2; ++s)
      for (Index head : block.heads)
        for (Index row = s * of_sequence + 3; row < (s + 1) * of_sequence; ++row)
          for (Index c = head * d; c < (head + 1) * d; ++c) {
            stacked.push_back(at(t, {row, c}));
            added[static_cast<std::size_t>(row * 6 + c)] += at(t, {row, c});
          }
    CHECK(stack.to_host() == stacked);
    CHECK(sums.to_host() == added);
  }
}

TEST_CASE("heads that a matrix does not have are refused") {
  const Tensor t({6, 4});
  auto refuses = [&](const HeadBlock& block, const std::string& words) {
    REFUSED(words, stack_heads(t, block));
  };
  const std::string sequences = " sequences of one length, and some of each, given (6, 4) with rows ";
  refuses({4, {0, 1}, {0, 1}, 2, {0}}, "expected rows of 4" + sequences + "0 to 1 of sequences 0 to 1");
  refuses({0, {0, 0}, {0, 1}, 2, {0}}, "expected rows of 1" + sequences);
  refuses({2, {1, 3}, {0, 1}, 2, {0}}, sequences + "0 to 1 of sequences 1 to 3");
  refuses({2, {0, 1}, {2, 4}, 2, {0}}, sequences + "2 to 4 of sequences 0 to 1");
  refuses({2, {0, 1}, {-1, 1}, 2, {0}}, sequences + "-1 to 1");
  refuses({2, {0, 1}, {0, 1}, 3, {0}}, "expected a head_dim that divides the columns of (6, 4), given 3");
  refuses({2, {0, 1}, {0, 1}, 0, {0}}, "expected a head_dim");
  refuses({2, {0, 1}, {0, 1}, 2, {1, 2}}, "stack_heads: expected heads from 0 to 1, given 2");
  Tensor into({6, 4});
  REFUSED("add_heads: expected (1, 1, 2), given (2, 1, 2)",
          add_heads(Tensor({2, 1, 2}), {2, {0, 1}, {0, 1}, 2, {0}}, into));
}

TEST_CASE("operations by rows and by columns refuse shapes that do not fit") {
  const Tensor vector_of_3({3}), vector_of_2({2}), column({2, 1});
  REFUSED("row_sums: expected a matrix, given (3,)", row_sums(Tensor({3})));
  REFUSED("row_max: expected a matrix, given (3,)", row_max(Tensor({3})));
  auto scores = [] { return Tensor({2, 1, 3}); };
  const ScoreRule rule{1, 0, 0, ExponentialBase::e};
  REFUSED("powers_of_scores: expected a stack of matrices, given (2, 3)", powers_of_scores(small(), rule));
  REFUSED("powers_of_scores: expected (2,), one number for each row of (2, 1, 3), given (3,)",
          powers_of_scores(scores(), rule, &vector_of_3));
  REFUSED("softmax_of_scores: expected (2,), one number for each row",
          softmax_of_scores(scores(), rule, vector_of_2, vector_of_3));
  REFUSED("softmax_of_scores_backward: expected (2,), one number for each row",
          softmax_of_scores_backward(scores(), scores(), vector_of_3, 1));
  REFUSED("softmax_of_scores_backward: expected equal shapes, given (2, 1, 3) and (2, 3)",
          softmax_of_scores_backward(scores(), small(), vector_of_2, 1));
  REFUSED("column_sums: expected a matrix, given (3,)", column_sums(Tensor({3})));
  REFUSED("row_dots: expected equal shapes, given (2, 3) and (3, 2)", row_dots(small(), Tensor({3, 2})));
  REFUSED("row_dots: expected a matrix, given (3,)", row_dots(Tensor({3}), Tensor({3})));
  REFUSED("column_dots: expected equal shapes, given (2, 3) and (3, 2)",
          column_dots(small(), Tensor({3, 2})));
  REFUSED("column_dots: expected a matrix, given (3,)", column_dots(Tensor({3}), Tensor({3})));
  const std::string for_rows = "expected (2,), one number for each row of (2, 3), given ";
  const std::string for_columns = "expected (3,), one number for each column of (2, 3), given ";
  REFUSED("scale_rows: " + for_rows + "(3,)", scale_rows(small(), vector_of_3));
  REFUSED("scale_rows: " + for_rows + "(2, 1)", scale_rows(small(), column));
  REFUSED("divide_rows: " + for_rows + "(3,)", divide_rows(small(), vector_of_3));
  REFUSED("add_to_columns: " + for_rows + "(3,)", add_to_columns(small(), vector_of_3));
  REFUSED("exponentials: " + for_rows + "(3,)", exponentials(small(), vector_of_3, ExponentialBase::e));
  REFUSED("scale_columns: " + for_columns + "(2,)", scale_columns(small(), vector_of_2));
  REFUSED("add_to_rows: " + for_columns + "(2,)", add_to_rows(small(), vector_of_2));
  REFUSED("scale_rows: expected a matrix, given (2,)", scale_rows(Tensor({2}), vector_of_2));
  REFUSED("scale_columns: expected a matrix, given (2,)", scale_columns(Tensor({2}), vector_of_2));
}

}  // namespace shard::testing
