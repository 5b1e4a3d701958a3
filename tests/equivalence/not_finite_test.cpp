/// Shows that no comparison takes a number that is not finite for a right one: NaN and both infinities are planted in
/// each result of each variant, in each result of each layer of chapter 07, and in each loss of a curve.

#include <cmath>
#include <limits>
#include <utility>

#include "engine/proof/exact.hpp"
#include "engine/proof/loss_curve.hpp"
#include "tests/equivalence/each_case.hpp"
#include "tests/equivalence/layer_claims.hpp"
#include "tests/equivalence/rounding.hpp"

namespace shard::testing {

RUNS_ON(.in_one_process = {1, 3});

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const float not_finite[] = {NAN, static_cast<float>(infinity), static_cast<float>(-infinity)};

/// A result of this device: an element of it is replaced while this object lives.
class Planted {
 public:
  Planted(Placed& result, std::size_t element, float value)
      : result_(result), right_(result.local().to_host()) {
    std::vector<float> wrong = right_;
    wrong.at(element) = value;
    put(wrong);
  }
  ~Planted() { put(right_); }

 private:
  /// A Placed gives no right to change its elements, since an engine's results are final.
  void put(const std::vector<float>& values) {
    const_cast<Tensor&>(result_.local()) = Tensor::from_host(result_.local().shape(), values);
  }

  Placed& result_;
  std::vector<float> right_;
};

/// Checks that `difference()` speaks of an element that is not finite.
template <class Difference>
void check_noticed(const Difference& difference) {
  CHECK_THAT(difference(), contains("an element is not finite"));
}

/// Plants in the first and in the last element of each result of a step.
Index plant_in_each(Results& results, const Solution& expected) {
  auto difference = [&] { return first_difference(compare_all(results, expected)); };
  Index planted = 0;
  for (const float value : not_finite) {
    for (OutputRows& rows : results.output)
      for (const std::size_t at : {std::size_t{0}, rows.rows.values.size() - 1}) {
        if (rows.rows.values.empty()) continue;
        const float right = std::exchange(rows.rows.values.at(at), value);
        INFO("output, element " << at << ": " << value);
        check_noticed(difference);
        rows.rows.values[at] = right;
        ++planted;
      }
    for (auto& [name, gradient] : results.gradients)
      for (const Index at : {Index{0}, gradient.local().size() - 1}) {
        if (!gradient.is_here() || gradient.local().size() == 0) continue;
        INFO(name << ", element " << at << ": " << value);
        const Planted wrong(gradient, static_cast<std::size_t>(at), value);
        check_noticed(difference);
        ++planted;
      }
  }
  return planted;
}

/// A layer of chapter 07 with a number that is not finite in one of its results.
class Broken : public layer_cuts::Layer {
 public:
  Broken(std::unique_ptr<Layer> right, Arithmetic how, std::string result, float value)
      : Layer(right->group(), how), right_(std::move(right)), result_(std::move(result)), value_(value) {}

  void load_checkpoint(const Checkpoint& checkpoint) override { right_->load_checkpoint(checkpoint); }
  Placement input_layout() const override { return right_->input_layout(); }
  Placed forward(Tensor x) override {
    right_->want_input_grad(wants_input_grad());
    Placed output = right_->forward(std::move(x));
    if (result_ == "output") plant_in(output);
    return output;
  }
  Gradients backward(Tensor dout) override {
    Gradients gradients = right_->backward(std::move(dout));
    if (const auto found = gradients.find(result_); found != gradients.end()) plant_in(found->second);
    return gradients;
  }

 private:
  void plant_in(Placed& result) const {
    std::vector<float> values = result.local().to_host();
    if (values.empty()) return;
    values.back() = value_;
    const_cast<Tensor&>(result.local()) = Tensor::from_host(result.local().shape(), values);
  }

  std::unique_ptr<Layer> right_;
  std::string result_;
  float value_;
};

}  // namespace

TEST_CASE("a number that is not finite is a difference, in each result of each variant", "[faults]") {
  for (const Variant& variant : variants_here()) {
    const Case c = cases(variant).front();
    CAPTURE(c.describe());
    const auto& [problem, expected] = solved<3>(c);
    const std::unique_ptr<ShardedEngine> engine = c.engine(problem);  // results refer to its groups
    Results results = run_step(*engine, problem.input, problem.output_grad);
    CHECK(first_difference(compare_all(results, expected)).empty());
    const Index planted = plant_in_each(results, expected);
    CHECK(group().exchange("planted", planted) != std::vector<Index>(static_cast<std::size_t>(devices())));
    CHECK(first_difference(compare_all(results, expected)).empty());
  }
}

TEST_CASE("layers: a number that is not finite is not as claimed, in each result of each layer") {
  for_each_claim(layer_cuts::grid(), [&](const layer_cuts::LayerCase& layer, const layer_cuts::Claim& claim,
                                         const layer_cuts::Results& whole) {
    CHECK(find(layer, claim, whole, group(), layer_cuts::grid()).is_as_claimed);
    for (const auto& [name, expected] : whole)
      for (const float value : not_finite) {
        INFO(name << ": " << value);
        layer_cuts::Claim broken = claim;
        broken.make = [&](Communicator& group, Arithmetic how) {
          return std::make_unique<Broken>(claim.make(group, how), how, name, value);
        };
        const layer_cuts::Finding found = find(layer, broken, whole, group(), layer_cuts::grid());
        CHECK_FALSE(found.is_as_claimed);
        CHECK(found.relative == infinity);
      }
  });
}

TEST_CASE("a loss that is not finite is a difference, of a run and of the unsharded network, in each step") {
  const LossCurve right{{1, 0.5, 0.25}};
  for (const double value : {static_cast<double>(NAN), infinity, -infinity})
    for (std::size_t step = 0; step < right.losses.size(); ++step) {
      INFO("step " << step << ": " << value);
      LossCurve wrong = right;
      wrong.losses[step] = value;
      const auto wrong_step = static_cast<Index>(step) + 1;
      CHECK(compare_curves(wrong, right, right, 1e-6).wrong_step == wrong_step);
      CHECK(compare_curves(right, wrong, right, 1e-6).wrong_step == wrong_step);
      CHECK(compare_curves(wrong, wrong, right, 1e-6).wrong_step == wrong_step);
      CHECK(compare_curves(wrong, right, {{1, 0.5, 0.2}}, 1e-6).wrong_step ==
            wrong_step);  // rounding decides
    }
}

TEST_CASE("a difference, a bound, and a claim of exactness that are no numbers are not small") {
  const HostTensor right{{2}, {1, 2}}, bound{{2}, {0.5, 0.5}};
  for (const float value : not_finite)
    for (const std::size_t at : {std::size_t{0}, std::size_t{1}}) {
      INFO("element " << at << ": " << value);
      HostTensor wrong = right;
      wrong.values[at] = value;
      CHECK(compare("w", wrong, right).relative == infinity);
      CHECK(compare("w", right, wrong).relative == infinity);
      CHECK(compare("w", wrong, wrong).is_equal() == !std::isnan(value));
      CHECK_FALSE(worst_in_bounds(wrong, right, bound) <= 1);
      CHECK_FALSE(worst_in_bounds(right, wrong, bound) <= 1);
      CHECK_FALSE(Bounded{{{"w", right}}, {{"w", wrong}}}.widest() < 1);
      if (std::isnan(value)) CHECK_FALSE(worst_in_bounds(right, {{2}, {3, 3}}, wrong) <= 1);
      const exact::ExactProducts asserted;
      CHECK(refusal([&] {
              matmul(Tensor::from_host({1, 2}, wrong.values), Tensor({2, 1}));
            }).code == static_cast<int>(Code::usage));
    }
}

}  // namespace shard::testing
