/// Optimizer updates. Each is one pass over memory, since memory bandwidth limits them.

#include "cuda/gpu.hpp"
#include "cuda/gpu_memory.hpp"
#include "cuda/kernels/launch.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

namespace {

struct SgdUpdate {
  SHARDBOOK_KERNEL void operator()(Index i, float* w, const float* g, float rate) const {
    w[i] -= rate * g[i];
  }
};

struct AdamUpdate {
  AdamSettings s;
  AdamStep step;

  SHARDBOOK_KERNEL void operator()(Index i, float* w, const float* g, float* m, float* v) const {
    const float gradient = g[i], weight = w[i], old_mean = m[i],
                old_variance = v[i];  // all read before any is written
    const float mean = s.beta1 * old_mean + (1 - s.beta1) * gradient;
    const float variance = s.beta2 * old_variance + (1 - s.beta2) * gradient * gradient;
    m[i] = mean;
    v[i] = variance;
    w[i] = weight - step.rate * mean / (sqrtf(variance) * step.v_scale + s.epsilon);
  }
};

struct IntegerUpdate {
  SHARDBOOK_KERNEL void operator()(Index i, float* w, const float* g) const {
    // fmod is exact and has its argument's sign. w - g may need more bits than float32 has, so g is reduced first.
    const float remainder = fmodf(w[i] - fmodf(g[i], 5.0F), 5.0F);
    w[i] = (remainder < 0 ? remainder + 5.0F : remainder) - 2.0F;
  }
};

/// Launches kernel(i, w, g, more...) for these elements of w.
template <class Kernel, class... More>
void update(Kernel kernel, Tensor& w, Range elements, const Tensor& g, More... more) {
  cuda::launch_elements(kernel, elements.size(), cuda::gpu().computation(),
                        TensorMemory::data(w) + elements.begin, TensorMemory::data(g), more...);
}

}  // namespace

void sgd_update(Tensor& w, Range elements, const Tensor& g, float rate) {
  update(SgdUpdate(), w, elements, g, rate);
}

void adam_update(Tensor& w, Range elements, const Tensor& g, Tensor& m, Tensor& v,
                 const AdamSettings& settings, const AdamStep& step) {
  update(AdamUpdate{settings, step}, w, elements, g, TensorMemory::data(m), TensorMemory::data(v));
}

void integer_update(Tensor& w, Range elements, const Tensor& g) {
  update(IntegerUpdate(), w, elements, g);
}

}  // namespace shard::kernels
