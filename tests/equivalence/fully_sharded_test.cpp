/// Chapter 06: weights that are kept between forward and backward, and numbers that are sent in bf16.

#include <cmath>

#include "06_fully_sharded/keep.hpp"
#include "06_fully_sharded/prefetch.hpp"
#include "06_fully_sharded/zero1.hpp"
#include "06_fully_sharded/zero2.hpp"
#include "06_fully_sharded/zero3.hpp"
#include "engine/engines/optimizer.hpp"
#include "engine/weights/checkpoint.hpp"
#include "engine/workloads/mlp/mlp.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace shard::fully_sharded;
using testing::group;

RUNS_ON(.in_one_process = {1, 3, 8});

namespace {

const Model model{4, 5, 7};
constexpr Index batch = 9;

Tensor my_rows_of(const HostTensor& t) {
  Range rows = part(t.shape[0], group().num_devices(), group().device_id());
  return slice(Tensor::from_host(t.shape, t.values), 0, rows.begin, rows.end);
}

template <class Engine>
struct Trained {
  ExactProblem problem = make_exact_problem(model, batch, 3);
  Engine engine{testing::group()};

  /// `factor`: of all weights, so that they are no integers.
  explicit Trained(float factor = 1) {
    for (auto& [name, weights] : problem.weights)
      for (float& w : weights.values) w *= factor;
    engine.load_checkpoint(*host_checkpoint(problem.weights, "test"));
  }
  void forward() { engine.forward(my_rows_of(problem.input)); }
  Gradients backward() { return engine.backward(my_rows_of(problem.output_grad)); }
};

Traffic gathered() {
  return ledger().traffic(Collective::all_gather);
}

std::map<std::string, std::vector<float>> values_of(const Gradients& gradients) {
  std::map<std::string, std::vector<float>> values;
  for (const auto& [name, gradient] : gradients) values[name] = gradient.local().to_host();
  return values;
}

/// The gradients of a backward pass whose forward pass came before a step of the optimizer.
template <class Engine>
auto gradients_across_a_step() {
  Trained<Engine> t;
  t.forward();
  t.forward();
  IntegerOptimizer([](const std::string&) { return false; }).step(t.engine, t.backward());
  return values_of(t.backward());
}

template <class Engine>
auto gradients_in(Precision precision, bool reduce_in_bf16 = false) {
  set_precision(precision);
  Trained<Engine> t(1.1F);
  t.engine.reduce_in_bf16(reduce_in_bf16);
  t.forward();
  const Gradients gradients = t.backward();
  set_precision(Precision::float32);
  return values_of(gradients);
}

}  // namespace

TEST_CASE("forwards that wait for their backwards share one copy of the weights, which the last one frees") {
  Trained<Zero3Keep> t;
  const Index before = ledger().live();
  ledger().reset();
  t.forward();
  const Traffic once = gathered();
  CHECK((once.bytes > 0) == (group().num_devices() > 1));
  const Index activations = batch * (2 * model.model_dim + 2 * model.hidden_dim) * 4;
  const Index weights = model.weights() * 4;
  t.forward();
  CHECK(gathered() == once);
  // All devices' activations together, and one copy of the weights on each.
  Index held = 0;
  for (Index bytes : group().exchange("held", ledger().live() - before)) held += bytes;
  CHECK(held == 2 * activations + group().num_devices() * weights);
  t.backward();
  held = 0;
  for (Index bytes : group().exchange("held", ledger().live() - before)) held += bytes;
  CHECK(held == activations + group().num_devices() * weights);
  t.backward();
  CHECK(gathered() == once);
  CHECK(ledger().live() == before);
}

TEST_CASE("a forward pass without a tape uses weights that are there, and keeps none") {
  Trained<Zero3Keep> t;
  const Index before = ledger().live();
  {
    InferenceMode no_tape;
    t.forward();
    CHECK(ledger().live() == before);
  }
  t.forward();
  const Index waiting = ledger().live();
  ledger().reset();
  {
    InferenceMode no_tape;
    t.forward();
  }
  CHECK(gathered() == Traffic{});
  CHECK(ledger().live() == waiting);
  t.backward();
  CHECK(ledger().live() == before);
}

TEST_CASE("weights kept across a step of the optimizer are not used after it") {
  CHECK(gradients_across_a_step<Zero3Keep>() == gradients_across_a_step<Zero3>());
}

TEST_CASE("in bf16, weights that are rounded before they are gathered give the gradients of whole weights") {
  const auto expected = gradients_in<Zero2>(Precision::bf16);
  CHECK(gradients_in<Zero3>(Precision::bf16) == expected);
  CHECK(gradients_in<Zero3Keep>(Precision::bf16) == expected);
  CHECK(gradients_in<Zero3Prefetch>(Precision::bf16) == expected);
  const bool is_rounded = gradients_in<Zero2>(Precision::float32) != expected;
  CHECK((is_rounded || group().device_id() > 0));  // the last devices may have no rows
}

TEST_CASE("gradients reduced in bf16: each addend is rounded once, and the sum is float32") {
  constexpr Index rows = 7, columns = 5;
  const int devices = group().num_devices();
  auto addend = [](int device) {
    std::vector<float> values;
    for (Index i = 0; i < rows * columns; ++i)
      values.push_back(std::sin(static_cast<float>(1 + i + 100 * device)));
    return values;
  };
  Trained<Zero3> t;
  t.engine.reduce_in_bf16(true);
  set_precision(Precision::bf16);
  ledger().reset();
  const Tensor given = t.engine
                           .reduce_scatter<0>(Partial(
                               group(), Tensor::from_host({rows, columns}, addend(group().device_id()))))
                           .local();
  set_precision(Precision::float32);
  const std::vector<Index> pairs = slices(rows, (columns + 1) / 2, devices);
  CHECK(ledger().traffic().bytes == pairwise_all_to_all(pairs, group().device_id()).bytes);
  const std::vector<float> sums = given.to_host();
  const Range mine = part(rows, devices, group().device_id());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    float rounded_sum = 0;
    double sum = 0, of_absolutes = 0;
    for (int d = 0; d < devices; ++d) {
      const float x = addend(d)[static_cast<std::size_t>(mine.begin * columns) + i];
      int exponent = 0;
      std::frexp(x, &exponent);
      const float rounded = std::ldexp(std::nearbyint(std::ldexp(x, 8 - exponent)), exponent - 8);  // 8 bits
      rounded_sum = d == 0 ? rounded : rounded_sum + rounded;
      sum += x;
      of_absolutes += std::abs(x);
    }
    CHECK(sums[i] == rounded_sum);
    CHECK(std::abs(sums[i] - sum) <= (0x1p-8 + (devices - 1) * 0x1p-23) * of_absolutes);
  }
}

TEST_CASE("gradients reduced in bf16 are the same in all stages, and not those reduced in float32") {
  const auto expected = gradients_in<Zero2>(Precision::bf16, true);
  CHECK(gradients_in<Zero1>(Precision::bf16, true) == expected);
  CHECK(gradients_in<Zero3>(Precision::bf16, true) == expected);
  CHECK(gradients_in<Zero3Keep>(Precision::bf16, true) == expected);
  CHECK((gradients_in<Zero2>(Precision::bf16) != expected || group().device_id() > 0));
  CHECK(gradients_in<Zero2>(Precision::float32, true) == gradients_in<Zero2>(Precision::float32));
}
