/// The comparison of loss curves, and the products of exact mode.

#include <cmath>

#include "engine/proof/exact.hpp"
#include "engine/proof/loss_curve.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

RUNS_ON(.in_one_process = {1, 3});

namespace {

LossCurve curve(std::vector<double> losses, std::vector<std::vector<Index>> decisions = {}) {
  return {std::move(losses), std::move(decisions)};
}
constexpr double rounding = 1e-6;

}  // namespace

TEST_CASE("exact mode looks at each product of a stack") {
  const std::vector<float> ones(4, 1), large = {1, 1, 0x1p24F, 1};
  auto product = [&](const std::vector<float>& left) {
    const exact::ExactProducts asserted;
    matmul(Tensor::from_host({2, 1, 2}, left), Tensor::from_host({2, 2, 1}, ones));
  };
  product(ones);
  CHECK(refusal([&] { product(large); }).code == static_cast<int>(Code::usage));
}

TEST_CASE("loss curves agree within what rounding makes of the unsharded network's") {
  const LossCurve reference = curve({1, 0.5, 0.25});
  CurveComparison c = compare_curves(curve({1 + 3.9e-6, 0.5, 0.25}), reference, reference, rounding);
  CHECK(c.is_good());
  CHECK(c.steps == 3);
  CHECK(std::abs(c.largest - 3.9e-6) < 1e-12);
  CHECK(std::abs(c.allowed - 4e-6) < 1e-12);
  c = compare_curves(curve({1, 0.5 + 2.1e-6, 0.25}), reference, reference, rounding);  // 4 × 1e-6 × 0.5
  CHECK(c.wrong_step == 2);
  CHECK(c.steps == 2);
  CHECK(c.expected == 0.5);
  CHECK(c.given == 0.5 + 2.1e-6);
  // Where moved weights change the loss by 1e-3, four times that is allowed, in later steps, too.
  const LossCurve moved = curve({1, 0.501, 0.25});
  c = compare_curves(curve({1, 0.5, 0.3}), reference, moved, rounding);
  CHECK(c.steps == 2);  // in step 3, 0.004 is allowed, and that is 1.6 % of the loss
  CHECK(c.is_good());
  CHECK(compare_curves(curve({1, 0.5035, 0.25}), reference, curve({1, 0.5009, 0.25}), rounding).is_good());
  CHECK(compare_curves(curve({1, 0.5037, 0.25}), reference, curve({1, 0.5009, 0.25}), rounding).wrong_step ==
        2);
  CHECK(compare_curves(curve({1.0001, 0.5, 0.25}), reference, moved, rounding).wrong_step == 1);
  CHECK(compare_curves(curve({1, NAN, 0.25}), reference, reference, rounding).wrong_step == 2);
  CHECK(compare_curves(curve({1, 0.5, 0.25}), reference, curve({1, NAN, 0.25}), rounding).steps == 1);
}

TEST_CASE("loss curves are compared up to a choice that rounding turned, and no more choices than that") {
  const LossCurve reference = curve({1, 0.5, 0.25}, {{3, 1}, {2, 2}, {2, 2}});
  auto run = [&](std::vector<std::vector<Index>> decisions) {
    return compare_curves(curve({1, 0.5, 0.3}, std::move(decisions)), reference, reference, rounding);
  };
  CHECK(run({{3, 1}, {2, 2}, {3, 1}}).is_good());
  CHECK(run({{3, 1}, {2, 2}, {3, 1}}).steps == 2);
  CHECK(run({{3, 1}, {2, 2}, {4, 0}}).wrong_step == 3);
  CHECK(run({{3, 1}, {2, 2}, {2, 2}}).wrong_step == 3);
  CHECK(run({{1, 3}, {2, 2}, {2, 2}}).wrong_step == 1);
  const LossCurve moved = curve({1, 0.5, 0.25}, {{3, 1}, {4, 0}, {2, 2}});  // two choices
  CHECK(compare_curves(curve({1, 0.5, 0.3}, {{3, 1}, {2, 2}, {4, 0}}), reference, moved, rounding).is_good());
}

}  // namespace shard::testing
