/// Optimizer updates. Each is one pass over memory, since memory bandwidth limits them.

#include "cuda/gpu.hpp"
#include "cuda/gpu_memory.hpp"
#include "cuda/kernels/adam.hpp"
#include "cuda/kernels/launch.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

namespace {

struct SgdUpdate {
  SHARDBOOK_KERNEL void operator()(Index i, float* w, const float* g, float rate) const {
    w[i] -= rate * g[i];
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
  update(AdamUpdate{settings.beta1, settings.beta2, settings.epsilon, step.rate, step.v_scale}, w, elements,
         g, TensorMemory::data(m), TensorMemory::data(v));
}

void integer_update(Tensor& w, Range elements, const Tensor& g) {
  update(IntegerUpdate(), w, elements, g);
}

}  // namespace shard::kernels
