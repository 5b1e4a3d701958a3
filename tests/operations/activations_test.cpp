// Norms and gates. Values are compared with their definitions in float64, derivatives with finite differences
// of these definitions.

#include <cmath>

#include "engine/device/layer_operations.hpp"
#include "tests/operations/small_tensors.hpp"

RUNS_ON(.on_cuda = {1});

namespace shard::testing {

namespace {

/// From -24 to 24, dense around 0, and where an exponential overflows.
const Values arguments = [] {
  Values z = {0, 1e-6F, -1e-6F, 100, -100, 1e4F, -1e4F};
  for (int i = -96; i <= 96; ++i) z.push_back(0.25F * static_cast<float>(i) + 0.013F);
  for (int i = -40; i <= 40; ++i) z.push_back(0.05F * static_cast<float>(i) + 0.001F);
  return z;
}();

double sigma(double z) {
  return 1 / (1 + std::exp(-z));
}
double gelu_argument(double z) {
  return std::sqrt(8 / std::acos(-1.0)) * (z + 0.044715 * z * z * z);
}

struct Function {
  const char* name;
  Tensor (*of)(Tensor&&, SourceLine);
  Tensor (*backward)(Tensor&& dh, const Tensor&, SourceLine);
  bool takes_result;  ///< the backward function takes the result; else the argument
  double (*definition)(double);
  double (*exponent)(double);  ///< the argument of the exponential, which is rounded
};
const Function functions[] = {
    {"sigmoid", sigmoid, sigmoid_backward, true, sigma, [](double) { return 0.0; }},
    {"hyperbolic_tangent", hyperbolic_tangent, hyperbolic_tangent_backward, true,
     [](double z) { return std::tanh(z); }, [](double) { return 0.0; }},
    {"silu", silu, silu_backward, false, [](double z) { return z * sigma(z); }, [](double) { return 0.0; }},
    {"gelu", gelu, gelu_backward, false,
     [](double z) { return z * (1 + std::tanh(gelu_argument(z) / 2)) / 2; }, gelu_argument},
};

Tensor value_of(const Function& f, const Values& z) {
  return f.of(vector(z), SourceLine::current());
}

}  // namespace

TEST_CASE("gates, against float64") {
  for (const Function& f : functions) {
    CAPTURE(f.name);
    const Values given = value_of(f, arguments).to_host();
    for (std::size_t i = 0; i < given.size(); ++i) {
      CAPTURE(arguments[i]);
      const double expected = f.definition(arguments[i]);
      // Eight ulp for the exponential and four roundings. An absolute error of the exponent is a relative
      // error of the power. The last term is for a float64 definition that subtracts numbers near 1 from 1.
      const double bound = 0x1p-21 * (1 + std::abs(f.exponent(arguments[i]))) * std::abs(expected) +
                           0x1p-52 * std::abs(arguments[i]);
      CHECK(std::abs(given[i] - expected) <= bound);
    }
  }
}

TEST_CASE("a gate gives a number the same bits wherever it is, and NaN stays NaN") {
  for (const Function& f : functions) {
    CAPTURE(f.name);
    for (std::size_t n = 1; n <= 40; ++n) {
      const Values z(arguments.begin() + 7, arguments.begin() + 7 + static_cast<std::ptrdiff_t>(n));
      const Values whole = value_of(f, z).to_host();
      const Values slopes = f.backward(vector(Values(n, 1)), vector(z), SourceLine::current()).to_host();
      const std::size_t last = n - 1;
      CHECK(value_of(f, {z[last]}).to_host()[0] == whole[last]);
      CHECK(f.backward(vector({1}), vector({z[last]}), SourceLine::current()).to_host()[0] == slopes[last]);
      Values broken = z;
      broken[n / 2] = nan;
      CHECK(std::isnan(value_of(f, broken).to_host()[n / 2]));
      CHECK(std::isnan(
          f.backward(vector(Values(n, 1)), vector(broken), SourceLine::current()).to_host()[n / 2]));
      CHECK(std::isnan(f.backward(vector(broken), vector(z), SourceLine::current()).to_host()[n / 2]));
    }
  }
}

TEST_CASE("derivatives of gates, against finite differences") {
  for (const Function& f : functions) {
    CAPTURE(f.name);
    Values dh;
    for (std::size_t i = 0; i < arguments.size(); ++i)
      dh.push_back(1.5F - 0.25F * static_cast<float>(i % 11));
    const Tensor other = f.takes_result ? value_of(f, arguments) : vector(arguments);
    const Values given = f.backward(vector(dh), other, SourceLine::current()).to_host();
    for (std::size_t i = 0; i < given.size(); ++i) {
      CAPTURE(arguments[i]);
      constexpr double h = 0x1p-16;
      const double z = arguments[i];
      const double slope = (f.definition(z + h) - f.definition(z - h)) / (2 * h);
      // Central differences are off by h²/6 times a third derivative of at most 2, and by float64's rounding.
      // Each factor of a derivative has an error of at most 2^-21, their products are at most 1.2.
      const double bound = std::abs(dh[i]) * (0x1p-20 + 0x1p-33 + 0x1p-36 * std::abs(f.definition(z)));
      CHECK(std::abs(given[i] - dh[i] * slope) <= bound);
    }
  }
}

TEST_CASE("silu and gelu leave an argument that is kept as it is") {
  const Tensor z = Tensor::from_host({2, 3}, Values{-3, -2, -1, 0, 1, 2});
  const Tensor kept = z.clone();
  CHECK(silu(z).to_host() == silu(z.clone()).to_host());
  CHECK(gelu(z).to_host() == gelu(z.clone()).to_host());
  CHECK(silu(z).shape() == Shape{2, 3});
  CHECK(z.to_host() == kept.to_host());
}

TEST_CASE("round_to: the nearest multiple, of two as near the even one") {
  auto rounded = [](const Values& values, float unit) { return round_to(vector(values), unit).to_host(); };
  CHECK(rounded({0.5F, 1.5F, 2.5F, -0.5F, -1.5F, 0.49999997F, 0.50000006F, 7}, 1) ==
        Values{0, 2, 2, 0, -2, 0, 1, 7});
  CHECK(rounded({0x1p-5F, 0x3p-5F, 0x5p-5F, -0x3p-5F, 0x1.000002p-5F, 0.3F}, 0x1p-4F) ==
        Values{0, 0.125F, 0.125F, -0.125F, 0.0625F, 0.3125F});
  CHECK(rounded({1, 3, 5, 6.9F, -7}, 2) == Values{0, 4, 4, 6, -8});
  CHECK(rounded({0x1p-149F, 0x3p-149F, 0x1p-126F}, 0x1p-148F) == Values{0, 0x1p-147F, 0x1p-126F});
}

TEST_CASE("round_to leaves large numbers, and all numbers where the unit is 0") {
  const Values values = {0x1.fffffep127F, -0x1p24F - 2, 0.3F, infinity, -infinity};
  CHECK(round_to(vector(values), 0x1p-30F).to_host() == values);
  CHECK(round_to(vector(values), 0).to_host() == values);
  CHECK(std::isnan(round_to(vector({nan}), 1).to_host()[0]));
}

TEST_CASE("round_to keeps numbers within a limit, also where it does not round") {
  const Values values = {0.3F, 3.6F, -3.6F, 4.4F, -4.5F, 100, infinity, -infinity};
  CHECK(round_to(vector(values), 1, 4).to_host() == Values{0, 4, -4, 4, -4, 4, 4, -4});
  CHECK(round_to(vector(values), 0, 4).to_host() == Values{0.3F, 3.6F, -3.6F, 4, -4, 4, 4, -4});
  CHECK(round_to(vector({5, -5}), 1, 0).to_host() == Values{0, 0});
  CHECK(std::isnan(round_to(vector({nan}), 1, 4).to_host()[0]));
}

TEST_CASE("inverse_root, against float64") {
  const Values t = {0, 1e-8F, 0.1F, 0.7F, 3, 1e6F};
  const Values given = inverse_root(vector(t), 0.3F, 1e-5F).to_host();
  for (std::size_t i = 0; i < t.size(); ++i) {
    const double expected = 1 / std::sqrt(double{0.3F} * t[i] + double{1e-5F});
    CHECK(std::abs(given[i] - expected) <= 0x1p-22 * expected);  // four roundings
  }
  CHECK(inverse_root(vector({0, 2}), 8, 0.25F).to_host()[0] == 2);
}

TEST_CASE("norms and gates of no elements") {
  for (const Function& f : functions) {
    CHECK(f.of(Tensor({0, 3}), SourceLine::current()).shape() == Shape{0, 3});
    CHECK(f.backward(Tensor({0, 3}), Tensor({0, 3}), SourceLine::current()).shape() == Shape{0, 3});
  }
  CHECK(round_to(Tensor({0, 3}), 1).shape() == Shape{0, 3});
  CHECK(inverse_root(Tensor({0, 3}), 1, 1).shape() == Shape{0, 3});
}

TEST_CASE("norms and gates refuse what does not fit") {
  for (const Function& f : functions)
    REFUSED(std::string(f.name) + "_backward: expected equal shapes, given (2, 3) and (3, 2)",
            f.backward(Tensor({2, 3}), Tensor({3, 2}), SourceLine::current()));
  for (const auto& [unit, text] : {std::pair(3.0F, "3"), std::pair(-1.0F, "-1"), std::pair(0.75F, "0.75"),
                                   std::pair(infinity, "inf"), std::pair(nan, "nan")}) {
    const float wrong = unit;
    REFUSED(std::string("round_to: expected a unit that is 0 or a power of two, given ") + text,
            round_to(Tensor({2}), wrong));
  }
  for (float wrong : {-1.0F, nan})
    REFUSED("round_to: expected a limit of 0 or more, given ", round_to(Tensor({2}), 1, wrong));
}

}  // namespace shard::testing
