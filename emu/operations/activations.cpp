/// Functions of single elements, for norms and gates.

#include <cmath>

#include "emu/operations/host_memory.hpp"
#include "emu/operations/vectors.hpp"
#include "engine/device/layer_operations.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

namespace {

template <class F>
void map(const Tensor& from, Tensor& to, const F& f) {
  float* result = TensorMemory::data(to);
  for (float x : TensorMemory::span(from)) *result++ = f(x);
}

/// Multiplies each element of dh by f of the same element of t.
template <class F>
void chain(Tensor& dh, const Tensor& t, const F& f) {
  float* gradient = TensorMemory::data(dh);
  for (float x : TensorMemory::span(t)) *gradient++ *= f(x);
}

float sigma(float z) {
  return 1 / (1 + emu::power_of_e(-z));
}

/// 2u, where gelu(z) = z σ(2u), and below its derivative.
constexpr float two_roots = 1.5957691216057308F;  // 2 √(2/π)
constexpr float cubic = 0.044715F;
float gelu_argument(float z) {
  return two_roots * (z + cubic * z * z * z);
}
float gelu_slope(float z) {
  return two_roots * (1 + 3 * cubic * z * z);
}

}  // namespace

SHARDBOOK_VECTORS void round_to(Tensor& t, float unit, float limit) {
  map(t, t, [=](float x) {
    const float multiple = unit == 0 ? HUGE_VALF : x / unit;
    // A float32 of 2^23 or more is an integer.
    const float rounded = std::abs(multiple) < 0x1p23F ? std::rint(multiple) * unit : x;
    return rounded > limit ? limit : rounded < -limit ? -limit : rounded;
  });
}

SHARDBOOK_VECTORS void inverse_root(Tensor& t, float factor, float epsilon) {
  map(t, t, [=](float x) { return 1 / std::sqrt(factor * x + epsilon); });
}

SHARDBOOK_VECTORS void sigmoid(Tensor& z) {
  map(z, z, sigma);
}

SHARDBOOK_VECTORS void sigmoid_backward(Tensor& dh, const Tensor& h) {
  chain(dh, h, [](float x) { return x * (1 - x); });
}

void hyperbolic_tangent(Tensor& z) {
  map(z, z, [](float x) { return std::tanh(x); });
}

SHARDBOOK_VECTORS void hyperbolic_tangent_backward(Tensor& dh, const Tensor& h) {
  chain(dh, h, [](float x) { return 1 - x * x; });
}

SHARDBOOK_VECTORS void silu(const Tensor& z, Tensor& h) {
  map(z, h, [](float x) { return x * sigma(x); });
}

SHARDBOOK_VECTORS void silu_backward(Tensor& dh, const Tensor& z) {
  chain(dh, z, [](float x) { return sigma(x) * (1 + x * sigma(-x)); });
}

SHARDBOOK_VECTORS void gelu(const Tensor& z, Tensor& h) {
  map(z, h, [](float x) { return x * sigma(gelu_argument(x)); });
}

SHARDBOOK_VECTORS void gelu_backward(Tensor& dh, const Tensor& z) {
  chain(dh, z, [](float x) {
    const float argument = gelu_argument(x), share = sigma(argument);
    return share + x * share * sigma(-argument) * gelu_slope(x);
  });
}

}  // namespace shard::kernels
