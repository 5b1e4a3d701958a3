/// Chapter 01 against finite differences, so that all chapters cannot agree on a wrong gradient.

#include "01_single_device/single_device.hpp"

#include "engine/weights/checkpoint.hpp"
#include "engine/workloads/random.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/devices.hpp"

namespace shard::testing {

using single_device::SingleDevice;

namespace {

constexpr Index B = 4, D = 5, F = 6;
constexpr float delta = 0x1p-6F;

/// Numbers for which central differences are not approximate but exact. The output is linear in each single
/// weight and input as long as no pre-activation changes its sign: rows of the input have odd sums and W0 is
/// made of odd halves, so |x W0| ≥ 1/2, and a step of 2⁻⁶ moves it by at most 16 · 2⁻⁶. All numbers are
/// multiples of 2⁻⁸ and small, so that float32 holds them, and their sums, exactly.
struct Problem {
  HostTensor x{{B, D}, {}};
  HostTensor w0{{D, F}, {}};
  HostTensor w1{{F, D}, {}};
  HostTensor dout{{B, D}, {}};

  Problem() {
    CounterRandom random(11, "finite differences");
    std::uint64_t i = 0;
    for (Index row = 0; row < B; ++row) {
      int sum = 0;
      for (Index c = 0; c < D; ++c) {
        x.values.push_back(static_cast<float>(random.integer(i++, 0, 15)));
        sum += static_cast<int>(x.values.back());
      }
      if (sum % 2 == 0) x.values.back() += 1;
    }
    for (Index k = 0; k < D * F; ++k)
      w0.values.push_back(static_cast<float>(random.integer(i++, -2, 1)) + 0.5F);
    for (Index k = 0; k < F * D; ++k) w1.values.push_back(static_cast<float>(random.integer(i++, -2, 2)));
    for (Index k = 0; k < B * D; ++k) dout.values.push_back(static_cast<float>(random.integer(i++, -2, 2)));
  }

  std::unique_ptr<SingleDevice> engine() const {
    auto e = std::make_unique<SingleDevice>(group());
    e->load_checkpoint(*host_checkpoint({{"layer_0/weights", w0}, {"layer_1/weights", w1}}, "test"));
    e->want_input_grad(true);
    return e;
  }
  static Tensor on_device(const HostTensor& t) { return Tensor::from_host(t.shape, t.values); }

  /// L = Σ out · dout, whose derivative by the output is dout.
  double loss() const {
    InferenceMode no_tape;
    std::vector<float> out = engine()->forward(on_device(x)).local().to_host();
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += double{out[i]} * dout.values[i];
    return sum;
  }
};

/// (L(p + δ) − L(p − δ)) / 2δ for every element p of one tensor of the problem.
std::vector<float> central_differences(Problem& problem, HostTensor& tensor) {
  std::vector<float> derivative;
  for (float& p : tensor.values) {
    float before = p;
    p = before + delta;
    double above = problem.loss();
    p = before - delta;
    double below = problem.loss();
    p = before;
    derivative.push_back(static_cast<float>((above - below) / (2 * delta)));
  }
  return derivative;
}

}  // namespace

TEST_CASE("chapter 01's gradients are the central differences of its forward pass, exactly") {
  Problem problem;
  std::unique_ptr<SingleDevice> engine = problem.engine();
  engine->forward(Problem::on_device(problem.x));
  Gradients gradients = engine->backward(Problem::on_device(problem.dout));
  CHECK(gradients.local("layer_0/weights").to_host() == central_differences(problem, problem.w0));
  CHECK(gradients.local("layer_1/weights").to_host() == central_differences(problem, problem.w1));
  CHECK(gradients.local("input_grad").to_host() == central_differences(problem, problem.x));
}

}  // namespace shard::testing
