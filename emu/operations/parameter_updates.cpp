/// Optimizer updates. Each is one pass over memory, since memory bandwidth limits them.

#include <cmath>

#include "emu/operations/host_memory.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

void sgd_update(Tensor& w, Range elements, const Tensor& g, float rate) {
  float* weight = TensorMemory::data(w) + elements.begin;
  const float* gradient = TensorMemory::data(g);
  for (Index i = 0; i < elements.size(); ++i) weight[i] -= rate * gradient[i];
}

void adam_update(Tensor& w, Range elements, const Tensor& g, Tensor& m, Tensor& v, const AdamSettings& s,
                 const AdamStep& step) {
  const float* __restrict gradient = TensorMemory::data(g);
  float* __restrict weight = TensorMemory::data(w) + elements.begin;
  float* __restrict mean = TensorMemory::data(m);
  float* __restrict variance = TensorMemory::data(v);
  // Constants are local variables: read through a reference, they would prevent vectorization.
  const float beta1 = s.beta1, beta2 = s.beta2, epsilon = s.epsilon, rate = step.rate, v_scale = step.v_scale;
  const Index size = elements.size();
  for (Index i = 0; i < size; ++i) {
    mean[i] = beta1 * mean[i] + (1 - beta1) * gradient[i];
    variance[i] = beta2 * variance[i] + (1 - beta2) * gradient[i] * gradient[i];
    weight[i] -= rate * mean[i] / (std::sqrt(variance[i]) * v_scale + epsilon);
  }
}

void integer_update(Tensor& w, Range elements, const Tensor& g) {
  float* weight = TensorMemory::data(w) + elements.begin;
  const float* gradient = TensorMemory::data(g);
  for (Index i = 0; i < elements.size(); ++i) {
    // fmod is exact and has its argument's sign. w - g may need more bits than float32 has, so g is reduced first.
    const float remainder = std::fmod(weight[i] - std::fmod(gradient[i], 5.0F), 5.0F);
    weight[i] = (remainder < 0 ? remainder + 5.0F : remainder) - 2.0F;
  }
}

}  // namespace shard::kernels
