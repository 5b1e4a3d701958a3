/// Functions of single elements, for norms and gates, one kernel each.

#include "cuda/gpu.hpp"
#include "cuda/gpu_memory.hpp"
#include "cuda/kernels/launch.hpp"
#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/layer_checks.hpp"

namespace shard {

using runtime::note_elementwise;

namespace {

using cuda::gpu;
using cuda::launch_elements;

SHARDBOOK_KERNEL float sigma(float z) {
  return 1 / (1 + expf(-z));
}

/// 2u, where gelu(z) = z σ(2u), and below its derivative.
constexpr float two_roots = 1.5957691216057308F;  // 2 √(2/π)
constexpr float cubic = 0.044715F;
SHARDBOOK_KERNEL float gelu_argument(float z) {
  return two_roots * (z + cubic * z * z * z);
}
SHARDBOOK_KERNEL float gelu_slope(float z) {
  return two_roots * (1 + 3 * cubic * z * z);
}

struct RoundTo {
  float unit, limit;
  SHARDBOOK_KERNEL float operator()(float x) const {
    const float multiple = unit == 0 ? HUGE_VALF : x / unit;
    // A float32 of 2^23 or more is an integer.
    const float rounded = fabsf(multiple) < 0x1p23F ? rintf(multiple) * unit : x;
    return rounded > limit ? limit : rounded < -limit ? -limit : rounded;
  }
};
struct InverseRoot {
  float factor, epsilon;
  SHARDBOOK_KERNEL float operator()(float x) const { return 1 / sqrtf(factor * x + epsilon); }
};
struct Sigmoid {
  SHARDBOOK_KERNEL float operator()(float z) const { return sigma(z); }
};
struct SigmoidSlope {  // as a function of the result
  SHARDBOOK_KERNEL float operator()(float h) const { return h * (1 - h); }
};
struct HyperbolicTangent {
  SHARDBOOK_KERNEL float operator()(float z) const { return tanhf(z); }
};
struct HyperbolicTangentSlope {  // as a function of the result
  SHARDBOOK_KERNEL float operator()(float h) const { return 1 - h * h; }
};
struct Silu {
  SHARDBOOK_KERNEL float operator()(float z) const { return z * sigma(z); }
};
struct SiluSlope {
  SHARDBOOK_KERNEL float operator()(float z) const { return sigma(z) * (1 + z * sigma(-z)); }
};
struct Gelu {
  SHARDBOOK_KERNEL float operator()(float z) const { return z * sigma(gelu_argument(z)); }
};
struct GeluSlope {
  SHARDBOOK_KERNEL float operator()(float z) const {
    const float argument = gelu_argument(z), share = sigma(argument);
    return share + z * share * sigma(-argument) * gelu_slope(z);
  }
};

template <class F>
struct Mapped {
  F f;
  SHARDBOOK_KERNEL void operator()(Index i, const float* from, float* to) const { to[i] = f(from[i]); }
};
/// Multiplies each element of dh by f of the same element of t.
template <class F>
struct Chained {
  F f;
  SHARDBOOK_KERNEL void operator()(Index i, float* dh, const float* t) const { dh[i] *= f(t[i]); }
};

template <class F>
Tensor mapped(const char* call, Tensor&& t, F f) {
  note_elementwise(call, t.size());
  launch_elements(Mapped<F>{f}, t.size(), gpu().computation(), TensorMemory::data(std::as_const(t)),
                  TensorMemory::data(t));
  return std::move(t);
}
template <class F>
Tensor mapped(const char* call, const Tensor& t, F f) {
  note_elementwise(call, t.size());
  Tensor result = TensorMemory::make(t.shape());
  launch_elements(Mapped<F>{f}, t.size(), gpu().computation(), TensorMemory::data(t),
                  TensorMemory::data(result));
  return result;
}

template <class F>
Tensor chained(const char* call, Tensor&& dh, const Tensor& t, F f) {
  note_elementwise(call, t.size());
  require_same_shape(call, dh, t);
  launch_elements(Chained<F>{f}, t.size(), gpu().computation(), TensorMemory::data(dh),
                  TensorMemory::data(t));
  return std::move(dh);
}

}  // namespace

Tensor round_to(Tensor&& t, float unit, SourceLine where) {
  return round_to(std::move(t), unit, HUGE_VALF, where);
}

Tensor round_to(Tensor&& t, float unit, float limit, SourceLine where) {
  const CallSite call(where);
  require_unit(unit, limit);
  if (unit == 0 && limit == HUGE_VALF) return std::move(t);
  return mapped("round_to", std::move(t), RoundTo{unit, limit});
}

Tensor inverse_root(Tensor&& t, float factor, float epsilon, SourceLine where) {
  const CallSite call(where);
  return mapped("inverse_root", std::move(t), InverseRoot{factor, epsilon});
}

Tensor sigmoid(Tensor&& z, SourceLine where) {
  const CallSite call(where);
  return mapped("sigmoid", std::move(z), Sigmoid());
}

Tensor sigmoid_backward(Tensor&& dh, const Tensor& h, SourceLine where) {
  const CallSite call(where);
  return chained("sigmoid_backward", std::move(dh), h, SigmoidSlope());
}

Tensor hyperbolic_tangent(Tensor&& z, SourceLine where) {
  const CallSite call(where);
  return mapped("hyperbolic_tangent", std::move(z), HyperbolicTangent());
}

Tensor hyperbolic_tangent_backward(Tensor&& dh, const Tensor& h, SourceLine where) {
  const CallSite call(where);
  return chained("hyperbolic_tangent_backward", std::move(dh), h, HyperbolicTangentSlope());
}

Tensor silu(const Tensor& z, SourceLine where) {
  const CallSite call(where);
  return mapped("silu", z, Silu());
}

Tensor silu(Tensor&& z, SourceLine where) {
  const CallSite call(where);
  return mapped("silu", std::move(z), Silu());
}

Tensor silu_backward(Tensor&& dh, const Tensor& z, SourceLine where) {
  const CallSite call(where);
  return chained("silu_backward", std::move(dh), z, SiluSlope());
}

Tensor gelu(const Tensor& z, SourceLine where) {
  const CallSite call(where);
  return mapped("gelu", z, Gelu());
}

Tensor gelu(Tensor&& z, SourceLine where) {
  const CallSite call(where);
  return mapped("gelu", std::move(z), Gelu());
}

Tensor gelu_backward(Tensor&& dh, const Tensor& z, SourceLine where) {
  const CallSite call(where);
  return chained("gelu_backward", std::move(dh), z, GeluSlope());
}

}  // namespace shard
