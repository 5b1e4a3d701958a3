#pragma once

/// What operations on single elements share: each notes what it does, and lets the backend's kernel compute it.

#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/layer_checks.hpp"
#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard::runtime {

/// An argument if it is a tensor, else null.
template <class Argument>
const Tensor* tensor_of(const Argument& a) {
  if constexpr (std::same_as<Argument, Tensor>) return &a;
  return nullptr;
}

/// A function of each element, in the tensor's memory.
template <class Kernel, class... Args>
Tensor in_place(const char* call, Tensor&& t, SourceLine where, Kernel kernel, const Args&... args) {
  const CallSite site(where);
  {
    const Noted noted(call, t.size(), {&t, tensor_of(args)...}, &t);
    if (t.size() > 0) kernel(t, args...);
  }
  return std::move(t);
}

/// A function of each element, in the tensor's memory or as a new tensor.
inline Tensor mapped(const char* call, Tensor&& z, SourceLine where,
                     void (*kernel)(const Tensor& z, Tensor& h)) {
  return in_place(call, std::move(z), where, [kernel](Tensor& t) { kernel(t, t); });
}
inline Tensor mapped(const char* call, const Tensor& z, SourceLine where,
                     void (*kernel)(const Tensor& z, Tensor& h)) {
  const CallSite site(where);
  Tensor h = TensorMemory::make(z.shape());
  const Noted noted(call, z.size(), {&z}, &h);
  if (h.size() > 0) kernel(z, h);
  return h;
}

/// A function of the elements of two tensors of a shape, in the memory of the first.
template <class Kernel, class... Args>
Tensor combined(const char* call, Tensor&& a, const Tensor& b, SourceLine where, Kernel kernel,
                const Args&... args) {
  const CallSite site(where);
  require_same_shape(call, a, b);
  return in_place(call, std::move(a), where, kernel, b, args...);
}

}  // namespace shard::runtime
