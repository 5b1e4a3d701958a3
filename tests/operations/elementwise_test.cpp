// The values of operations on whole tensors, also of operations that no chapter uses with these arguments.

#include <algorithm>
#include <cmath>

#include "engine/device/books/ledger.hpp"
#include "engine/weights/foreign_model.hpp"
#include "tests/harness/refused.hpp"

using namespace shard;
using namespace shard::testing;

RUNS_ON(.on_cuda = {1});

namespace {

const Shape shape = {3, 5};
const HostTensor a = integers(shape, 0, 1), b = integers(shape, 1, 1);

HostTensor mapped(const std::function<float(float, float)>& f) {
  return tabulate(shape, [&](const Place& place) { return f(at(a, place), at(b, place)); });
}

}  // namespace

TEST_CASE("elementwise operations, element by element") {
  CHECK(difference(add(to_device(a), to_device(b)), mapped([](float x, float y) { return x + y; })) == "");
  CHECK(difference(subtract(to_device(a), to_device(b)), mapped([](float x, float y) { return x - y; })) ==
        "");
  CHECK(difference(multiply(to_device(a), to_device(b)), mapped([](float x, float y) { return x * y; })) ==
        "");
  CHECK(difference(scale(to_device(a), 3), mapped([](float x, float) { return 3 * x; })) == "");
  CHECK(difference(scaled_difference(to_device(a), to_device(b), 2),
                   mapped([](float x, float y) { return 2 * (x - y); })) == "");
  CHECK(difference(relu(to_device(a)), mapped([](float x, float) { return std::max(x, 0.0F); })) == "");
  const Tensor kept = to_device(a);
  CHECK(difference(relu(kept), mapped([](float x, float) { return std::max(x, 0.0F); })) == "");
  CHECK(difference(kept, a) == "");
  CHECK(difference(relu_backward(to_device(b), kept),
                   mapped([](float x, float y) { return x > 0 ? y : 0; })) == "");
  const Tensor at_0 = Tensor::from_host({3}, std::vector<float>{0, -0.0F, 1});
  CHECK(difference(relu_backward(at_0.clone(), at_0), {{3}, {0, 0, 1}}) == "");
  const Tensor no_number =
      Tensor::from_host({9}, std::vector<float>(9, NAN));  // more than one vector of a processor
  CHECK(std::ranges::all_of(relu(no_number).to_host(), [](float h) { return std::isnan(h); }));
  CHECK(std::ranges::all_of(relu(no_number.clone()).to_host(), [](float h) { return std::isnan(h); }));
  CHECK(difference(relu_backward(to_device({{1}, {5}}), Tensor::from_host({1}, std::vector<float>{NAN})),
                   {{1}, {5}}) == "");
}

TEST_CASE("sums of squares are in float64, and what is not finite is found") {
  auto of = [](float x) { return Tensor::from_host({2}, std::vector<float>{x, 2}); };
  CHECK(sum_of_squares(of(4097)) == 4097.0 * 4097 + 4);
  CHECK(all_finite(of(1)));
  CHECK_FALSE(all_finite(of(NAN)));
  CHECK_FALSE(all_finite(of(-INFINITY)));
}

TEST_CASE("operands of different shapes are refused") {
  const Tensor other({3, 4});
  REFUSED("", add(to_device(a), other));
  REFUSED("", subtract(to_device(a), other));
  REFUSED("", multiply(to_device(a), other));
  REFUSED("", relu_backward(to_device(a), other));
  REFUSED("", scaled_difference(other, to_device(a), 1));
  REFUSED("", matmul(other, other));
  REFUSED("", Tensor({-1}));
  REFUSED("", Tensor::from_host({3}, a.values));
}

TEST_CASE("a part along either axis is written from the host, and elements are read back") {
  const HostTensor columns = tabulate({3, 2}, [](const Place& place) {
    return at(b, {place[0], place[1] + 1});
  });
  Tensor t = to_device(a);
  t.write(1, 1, 3, columns.values);
  t.write(0, 2, 3, std::span(b.values).last(5));
  const HostTensor expected = tabulate(shape, [](const Place& place) {
    const bool is_written = place[0] == 2 || place[1] == 1 || place[1] == 2;
    return at(is_written ? b : a, place);
  });
  CHECK(difference(t, expected) == "");
  std::vector<float> middle(7);
  t.read(4, middle);
  CHECK(std::equal(middle.begin(), middle.end(), expected.values.begin() + 4));
  REFUSED("", t.write(1, 4, 6, columns.values));
  REFUSED("", t.write(1, 0, 3, columns.values));
  REFUSED("", t.write(2, 0, 1, {}));
  REFUSED("", t.read(9, middle));
}

TEST_CASE("products of every order of operands, and onto a tensor") {
  const Tensor left = to_device(a), right = to_device(b);
  const HostTensor turned = shard::transposed(b);
  const Tensor right_turned = to_device(turned);
  const HostTensor expected = product(a, turned);
  CHECK(difference(matmul(left, right_turned), expected) == "");
  CHECK(difference(matmul(left, shard::transposed(right)), expected) == "");
  const Tensor left_turned = to_device(shard::transposed(a));
  CHECK(difference(matmul(shard::transposed(left_turned), right_turned), expected) == "");
  CHECK(difference(matmul(shard::transposed(left_turned), shard::transposed(right)), expected) == "");
  CHECK(difference(matmul(left, shard::transposed(left)), product(a, shard::transposed(a))) == "");
  REFUSED("(3, 5) and (5, 3) transposed", matmul(left, shard::transposed(left_turned)));

  Tensor sum = matmul(left, right_turned);
  matmul_accumulate(left, right_turned, sum);
  CHECK(difference(scale(std::move(sum), 0.5F), expected) == "");
  Tensor wrong({2, 2});
  REFUSED("", matmul_accumulate(left, right_turned, wrong));
}

TEST_CASE("products of stacks, of every order of operands, and onto a stack") {
  auto stack = [](const std::vector<HostTensor>& matrices) {
    HostTensor all{{std::ssize(matrices), matrices[0].shape[0], matrices[0].shape[1]}, {}};
    for (const HostTensor& m : matrices)
      all.values.insert(all.values.end(), m.values.begin(), m.values.end());
    return all;
  };
  std::vector<HostTensor> lefts, rights, lefts_turned, rights_turned, products;
  for (int i : {0, 1, 2}) {
    lefts.push_back(integers({2, 4}, i)), rights.push_back(integers({4, 3}, i + 3));
    lefts_turned.push_back(shard::transposed(lefts.back()));
    rights_turned.push_back(shard::transposed(rights.back()));
    products.push_back(product(lefts.back(), rights.back()));
  }
  const Tensor left = to_device(stack(lefts)), right = to_device(stack(rights)),
               left_turned = to_device(stack(lefts_turned)), right_turned = to_device(stack(rights_turned));
  const HostTensor expected = stack(products);
  CHECK(difference(matmul(left, right), expected) == "");
  CHECK(difference(matmul(left, shard::transposed(right_turned)), expected) == "");
  CHECK(difference(matmul(shard::transposed(left_turned), right), expected) == "");
  const Index before = ledger().flops();
  Tensor sum = matmul(shard::transposed(left_turned), shard::transposed(right_turned));
  CHECK(ledger().flops() - before == 3 * 2 * (2 * 4 * 3));
  matmul_accumulate(left, right, sum);
  CHECK(difference(scale(std::move(sum), 0.5F), expected) == "");
  CHECK(matmul(Tensor({0, 2, 4}), Tensor({0, 4, 3})).shape() == Shape{0, 2, 3});
  CHECK(difference(matmul(Tensor({2, 1, 0}), Tensor({2, 0, 1})), {{2, 1, 1}, {0, 0}}) == "");
  for (const Shape& wrong : {Shape{4, 3}, Shape{2, 4, 3}, Shape{3, 3, 4}, Shape{3, 1, 4, 3}})
    REFUSED("", matmul(left, Tensor(wrong)));
}

TEST_CASE("products with no rows, no columns, and nothing to sum") {
  CHECK(matmul(Tensor({0, 3}), Tensor({3, 2})).shape() == Shape{0, 2});
  CHECK(difference(matmul(Tensor({2, 0}), Tensor({0, 2})), {{2, 2}, {0, 0, 0, 0}}) == "");
  Tensor kept = Tensor::from_host({1, 2}, std::vector<float>{3, 4});
  matmul_accumulate(Tensor({1, 0}), Tensor({0, 2}), kept);
  CHECK(difference(kept, {{1, 2}, {3, 4}}) == "");
}
