/// The steps of optimizers, on the rows that a device updates.

#include "engine/engines/optimizer.hpp"

#include <array>
#include <cmath>
#include <numeric>

#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

namespace {

std::vector<float> counting(Index n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

}  // namespace

TEST_CASE("each update reaches a parameter of one element") {
  const Tensor g = Tensor::from_host({1}, std::vector<float>{1});
  Tensor w = Tensor::from_host({1}, std::vector<float>{1}), m({1}), v({1});
  sgd_update(Rows(w), g, 0.5F);
  CHECK(w.to_host() == std::vector<float>{0.5F});
  adam_update(Rows(w), g, m, v, {.rate = 0.5F}, 1);
  CHECK(w.to_host()[0] < 1e-3F);
  integer_update(Rows(w = Tensor({1})), g);
  CHECK(w.to_host() == std::vector<float>{2});  // ((0 - 1) mod 5) - 2
}

TEST_CASE("optimizers update just their rows") {
  Tensor w = Tensor::from_host({3, 2}, counting(6));
  Tensor g = Tensor::from_host({1, 2}, std::vector<float>{1, -2});
  sgd_update(Rows(w, 1, 2), g, 0.5F);
  CHECK(w.to_host() == std::vector<float>{0, 1, 1.5F, 4, 4, 5});
  CHECK(refusal([&] { sgd_update(Rows(w, 0, 2), g, 0.5F); }).code == 84);
  CHECK(refusal([&] { Rows(w, 2, 4); }).code == 84);
  CHECK(refusal([&] { make_optimizer("adagrad", 1, [](const std::string&) { return false; }); }).code == 64);
}

TEST_CASE(
    "the integer optimizer: ((w - g) mod 5) - 2, exactly, for gradients as large as exact mode has them") {
  std::vector<float> gradients = {0, 1, -1, 7, -7, 16777215, -16777215, 8388606};
  for (float w : {-2.0F, 0.0F, 2.0F}) {
    Tensor weight = Tensor::from_host({8}, std::vector<float>(8, w));
    integer_update(Rows(weight), Tensor::from_host({8}, gradients));
    std::vector<float> updated = weight.to_host();
    for (std::size_t i = 0; i < 8; ++i) {
      auto difference = static_cast<long>(w) - static_cast<long>(gradients[i]);
      CHECK(updated[i] == static_cast<float>((difference % 5 + 5) % 5 - 2));
    }
  }
}

TEST_CASE("Adam takes the steps of Kingma and Ba's algorithm 1") {
  constexpr double rate = 0.01, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  Tensor w = Tensor::from_host({3}, std::vector<float>{1, -1, 0});
  Tensor m({3}), v({3});
  std::array<double, 3> expected = {1, -1, 0}, mean{}, variance{};
  for (int t = 1; t <= 20; ++t) {
    std::array<float, 3> g = {0.5F * static_cast<float>(t), -0.25F,
                              1e-6F};  // for the last one, epsilon matters
    adam_update(Rows(w), Tensor::from_host({3}, g), m, v, {rate, beta1, beta2, epsilon}, t);
    for (std::size_t i = 0; i < 3; ++i) {
      mean[i] = beta1 * mean[i] + (1 - beta1) * double{g[i]};
      variance[i] = beta2 * variance[i] + (1 - beta2) * double{g[i]} * double{g[i]};
      double corrected = mean[i] / (1 - std::pow(beta1, t));
      expected[i] -= rate * corrected / (std::sqrt(variance[i] / (1 - std::pow(beta2, t))) + epsilon);
    }
  }
  // Weights and steps are at most about 1. Each of the 20 steps has about ten roundings of relative 2^-24.
  for (std::size_t i = 0; i < 3; ++i) CHECK(std::abs(w.to_host()[i] - expected[i]) < 20 * 10 * 0x1p-24);
}

TEST_CASE("Adam refuses moments of another shape than the gradient's, the first and the second") {
  Tensor w = Tensor::from_host({3, 2}, counting(6)), fits({2, 2}), other({2, 3});
  const Tensor g({2, 2});
  auto code = [&](Tensor& m, Tensor& v) {
    return refusal([&] { adam_update(Rows(w, 0, 2), g, m, v, {}, 1); }).code;
  };
  CHECK(code(fits, fits) == 0);
  CHECK(code(other, fits) == 84);
  CHECK(code(fits, other) == 84);
}

namespace {

/// An engine with one parameter, of which this device updates rows 1 and 2.
class OneParameter : public PlainEngine {
 public:
  explicit OneParameter(Communicator& group)
      : PlainEngine(group), w(Tensor::from_host({3, 1}, counting(3))) {}
  Trainables trainable() override {
    Trainables all;
    all.push_back({"w", Rows(w, 1, 3), w.shape(), {{1, 3}, {0, 1}}});
    return all;
  }
  void after_step() override { ++steps; }
  Gradients gradients(float first, float second) {
    Gradients all;
    all.put("w", Replicated(group(), Tensor::from_host({2, 1}, std::vector<float>{first, second})));
    return all;
  }

  Tensor w;
  int steps = 0;
};

}  // namespace

TEST_CASE("optimizers by name: several steps of one engine, with a state of their own for each parameter") {
  const auto never = [](const std::string&) { return false; };
  OneParameter by_adam(group()), by_sgd(group());
  const std::unique_ptr<Optimizer> adam = make_optimizer("adam", 0.5, never);
  const std::unique_ptr<Optimizer> sgd = make_optimizer("sgd", 0.5, never);
  CHECK(adam->state_per_element() == 2);
  CHECK(sgd->state_per_element() == 0);
  Tensor w = Tensor::from_host({3, 1}, counting(3)), m({2, 1}), v({2, 1});  // what Adam's steps make of it
  double sum = 1;
  for (int t = 1; t <= 4; ++t) {
    const std::array<float, 2> g = {t == 1 ? 2.0F : -0.5F * static_cast<float>(t), 0};
    adam->step(by_adam, by_adam.gradients(g[0], g[1]));
    sgd->step(by_sgd, by_sgd.gradients(g[0], g[1]));
    adam_update(Rows(w, 1, 3), Tensor::from_host({2, 1}, g), m, v, {0.5, 0.9, 0.999, 1e-8}, t);
    sum -= 0.5 * double{g[0]};
  }
  CHECK(by_adam.w.to_host() == w.to_host());
  CHECK(by_adam.steps == 4);
  CHECK(by_sgd.w.to_host()[1] == static_cast<float>(sum));
  make_optimizer("integer", 0.5, never)->step(by_sgd, by_sgd.gradients(7, 0));
  CHECK(by_sgd.w.to_host()[2] == 0);  // (2 mod 5) - 2
  const auto stays = [](const std::string& name) { return name == "w"; };
  make_optimizer("integer", 0.5, stays)->step(by_sgd, by_sgd.gradients(7, 1));
  CHECK(by_sgd.w.to_host()[2] == 0);
}

}  // namespace shard::testing
