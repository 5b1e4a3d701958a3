/// Functions of single elements, for norms and gates, one kernel each.

#include "cuda/gpu.hpp"
#include "cuda/gpu_memory.hpp"
#include "cuda/kernels/launch.hpp"
#include "engine/device/layer_operations.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

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
void map(const Tensor& from, Tensor& to, F f) {
  launch_elements(Mapped<F>{f}, from.size(), gpu().computation(), TensorMemory::data(from),
                  TensorMemory::data(to));
}
template <class F>
void chain(Tensor& dh, const Tensor& t, F f) {
  launch_elements(Chained<F>{f}, t.size(), gpu().computation(), TensorMemory::data(dh),
                  TensorMemory::data(t));
}

}  // namespace

void round_to(Tensor& t, float unit, float limit) {
  map(t, t, RoundTo{unit, limit});
}

void inverse_root(Tensor& t, float factor, float epsilon) {
  map(t, t, InverseRoot{factor, epsilon});
}

void sigmoid(Tensor& z) {
  map(z, z, Sigmoid());
}

void sigmoid_backward(Tensor& dh, const Tensor& h) {
  chain(dh, h, SigmoidSlope());
}

void hyperbolic_tangent(Tensor& z) {
  map(z, z, HyperbolicTangent());
}

void hyperbolic_tangent_backward(Tensor& dh, const Tensor& h) {
  chain(dh, h, HyperbolicTangentSlope());
}

void silu(const Tensor& z, Tensor& h) {
  map(z, h, Silu());
}

void silu_backward(Tensor& dh, const Tensor& z) {
  chain(dh, z, SiluSlope());
}

void gelu(const Tensor& z, Tensor& h) {
  map(z, h, Gelu());
}

void gelu_backward(Tensor& dh, const Tensor& z) {
  chain(dh, z, GeluSlope());
}

}  // namespace shard::kernels
