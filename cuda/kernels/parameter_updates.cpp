/// Optimizer updates. Each is one pass over memory, since memory bandwidth limits them.

#include "cuda/gpu.hpp"
#include "cuda/gpu_memory.hpp"
#include "cuda/kernels/launch.hpp"
#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/argument_checks.hpp"

namespace shard {

using runtime::note_elementwise;

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

/// Launches kernel(i, w, g, more...) for every element of the rows.
template <class Kernel, class... More>
void update(const char* call, Kernel kernel, Rows rows, const Tensor& g, More... more) {
  const Range elements = elements_to_update(call, rows, g);
  cuda::launch_elements(kernel, elements.size(), cuda::gpu().computation(),
                        TensorMemory::data(*rows.tensor) + elements.begin, TensorMemory::data(g), more...);
}

}  // namespace

void sgd_update(Rows w, const Tensor& g, float rate, SourceLine where) {
  const CallSite call(where);
  note_elementwise("sgd_update", g.size());
  update("sgd_update", SgdUpdate(), w, g, rate);
}

void adam_update(Rows w, const Tensor& g, Tensor& m, Tensor& v, const AdamSettings& settings, Index step,
                 SourceLine where) {
  const CallSite call(where);
  note_elementwise("adam_update", g.size());
  elements_to_update("adam_update", w, g);
  require_moments(g, m, v);
  update("adam_update", AdamUpdate{settings, adam_step(settings, step)}, w, g, TensorMemory::data(m),
         TensorMemory::data(v));
}

void integer_update(Rows w, const Tensor& g, SourceLine where) {
  const CallSite call(where);
  note_elementwise("integer_update", g.size());
  update("integer_update", IntegerUpdate(), w, g);
}

}  // namespace shard
