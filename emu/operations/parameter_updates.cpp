/// Optimizer updates. Each is one pass over memory, since memory bandwidth limits them.

#include <cmath>

#include "emu/operations/host_memory.hpp"
#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/argument_checks.hpp"

namespace shard {

using runtime::note_elementwise;

namespace {

std::span<float> values(const char* call, Rows rows, const Tensor& gradient) {
  const Range elements = elements_to_update(call, rows, gradient);
  return TensorMemory::span(*rows.tensor)
      .subspan(static_cast<std::size_t>(elements.begin), static_cast<std::size_t>(elements.size()));
}

}  // namespace

void sgd_update(Rows w, const Tensor& g, float rate, SourceLine where) {
  const CallSite call(where);
  note_elementwise("sgd_update", g.size());
  std::span<float> weights = values("sgd_update", w, g);
  const float* gradient = TensorMemory::data(g);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= rate * gradient[i];
}

void adam_update(Rows w, const Tensor& g, Tensor& m, Tensor& v, const AdamSettings& s, Index step,
                 SourceLine where) {
  const CallSite call(where);
  note_elementwise("adam_update", g.size());
  std::span<float> weights = values("adam_update", w, g);
  require_moments(g, m, v);
  const auto [rate, v_scale] = adam_step(s, step);
  const float* __restrict gradient = TensorMemory::data(g);
  float* __restrict weight = weights.data();
  float* __restrict mean = TensorMemory::data(m);
  float* __restrict variance = TensorMemory::data(v);
  // Constants are local variables: read through a reference, they would prevent vectorization.
  const float beta1 = s.beta1, beta2 = s.beta2, epsilon = s.epsilon;
  const std::size_t size = weights.size();
  for (std::size_t i = 0; i < size; ++i) {
    mean[i] = beta1 * mean[i] + (1 - beta1) * gradient[i];
    variance[i] = beta2 * variance[i] + (1 - beta2) * gradient[i] * gradient[i];
    weight[i] -= rate * mean[i] / (std::sqrt(variance[i]) * v_scale + epsilon);
  }
}

void integer_update(Rows w, const Tensor& g, SourceLine where) {
  const CallSite call(where);
  note_elementwise("integer_update", g.size());
  std::span<float> weights = values("integer_update", w, g);
  const float* gradient = TensorMemory::data(g);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    // fmod is exact and has its argument's sign. w - g may need more bits than float32 has, so g is reduced first.
    float remainder = std::fmod(weights[i] - std::fmod(gradient[i], 5.0F), 5.0F);
    weights[i] = (remainder < 0 ? remainder + 5.0F : remainder) - 2.0F;
  }
}

}  // namespace shard
