/// Functions of single elements, for norms and gates.

#include <cmath>

#include "emu/operations/host_memory.hpp"
#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/layer_checks.hpp"

namespace shard {

using runtime::note_elementwise;

namespace {

template <class F>
Tensor mapped(const char* call, Tensor&& t, const F& f) {
  note_elementwise(call, t.size());
  for (float& x : TensorMemory::span(t)) x = f(x);
  return std::move(t);
}
template <class F>
Tensor mapped(const char* call, const Tensor& t, const F& f) {
  note_elementwise(call, t.size());
  Tensor result = TensorMemory::make(t.shape());
  float* to = TensorMemory::data(result);
  for (float x : TensorMemory::span(t)) *to++ = f(x);
  return result;
}

/// Multiplies each element of dh by f of the same element of t.
template <class F>
Tensor chained(const char* call, Tensor&& dh, const Tensor& t, const F& f) {
  note_elementwise(call, t.size());
  require_same_shape(call, dh, t);
  float* gradient = TensorMemory::data(dh);
  for (float x : TensorMemory::span(t)) *gradient++ *= f(x);
  return std::move(dh);
}

float sigma(float z) {
  return 1 / (1 + std::exp(-z));
}

float silu_of(float z) {
  return z * sigma(z);
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

float gelu_of(float z) {
  return z * sigma(gelu_argument(z));
}

}  // namespace

Tensor round_to(Tensor&& t, float unit, SourceLine where) {
  return round_to(std::move(t), unit, HUGE_VALF, where);
}

Tensor round_to(Tensor&& t, float unit, float limit, SourceLine where) {
  const CallSite call(where);
  require_unit(unit, limit);
  if (unit == 0 && limit == HUGE_VALF) return std::move(t);
  return mapped("round_to", std::move(t), [=](float x) {
    const float multiple = unit == 0 ? HUGE_VALF : x / unit;
    // A float32 of 2^23 or more is an integer.
    const float rounded = std::abs(multiple) < 0x1p23F ? std::rint(multiple) * unit : x;
    return rounded > limit ? limit : rounded < -limit ? -limit : rounded;
  });
}

Tensor inverse_root(Tensor&& t, float factor, float epsilon, SourceLine where) {
  const CallSite call(where);
  return mapped("inverse_root", std::move(t), [=](float x) { return 1 / std::sqrt(factor * x + epsilon); });
}

Tensor sigmoid(Tensor&& z, SourceLine where) {
  const CallSite call(where);
  return mapped("sigmoid", std::move(z), sigma);
}

Tensor sigmoid_backward(Tensor&& dh, const Tensor& h, SourceLine where) {
  const CallSite call(where);
  return chained("sigmoid_backward", std::move(dh), h, [](float x) { return x * (1 - x); });
}

Tensor hyperbolic_tangent(Tensor&& z, SourceLine where) {
  const CallSite call(where);
  return mapped("hyperbolic_tangent", std::move(z), [](float x) { return std::tanh(x); });
}

Tensor hyperbolic_tangent_backward(Tensor&& dh, const Tensor& h, SourceLine where) {
  const CallSite call(where);
  return chained("hyperbolic_tangent_backward", std::move(dh), h, [](float x) { return 1 - x * x; });
}

Tensor silu(const Tensor& z, SourceLine where) {
  const CallSite call(where);
  return mapped("silu", z, silu_of);
}

Tensor silu(Tensor&& z, SourceLine where) {
  const CallSite call(where);
  return mapped("silu", std::move(z), silu_of);
}

Tensor silu_backward(Tensor&& dh, const Tensor& z, SourceLine where) {
  const CallSite call(where);
  return chained("silu_backward", std::move(dh), z, [](float x) { return sigma(x) * (1 + x * sigma(-x)); });
}

Tensor gelu(const Tensor& z, SourceLine where) {
  const CallSite call(where);
  return mapped("gelu", z, gelu_of);
}

Tensor gelu(Tensor&& z, SourceLine where) {
  const CallSite call(where);
  return mapped("gelu", std::move(z), gelu_of);
}

Tensor gelu_backward(Tensor&& dh, const Tensor& z, SourceLine where) {
  const CallSite call(where);
  return chained("gelu_backward", std::move(dh), z, [](float x) {
    const float argument = gelu_argument(x), share = sigma(argument);
    return share + x * share * sigma(-argument) * gelu_slope(x);
  });
}

}  // namespace shard
