#pragma once

/// Views of tensors as flat xtensor arrays, without copies.

#if __has_include(<xtensor/containers/xadapt.hpp>)
#include <xtensor/containers/xadapt.hpp>
#include <xtensor/core/xmath.hpp>
#include <xtensor/core/xnoalias.hpp>
#else
#include <xtensor/xadapt.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xnoalias.hpp>
#endif

#include <array>

#include "engine/device/runtime/operations/tensor_memory.hpp"

namespace shard::emu {

inline auto flat(std::span<float> values) {
  return xt::adapt(values.data(), values.size(), xt::no_ownership(),
                   std::array<std::size_t, 1>{values.size()});
}
inline auto flat(std::span<const float> values) {
  return xt::adapt(values.data(), values.size(), xt::no_ownership(),
                   std::array<std::size_t, 1>{values.size()});
}
inline auto flat(Tensor& t) {
  return flat(TensorMemory::span(t));
}
inline auto flat(const Tensor& t) {
  return flat(TensorMemory::span(t));
}

}  // namespace shard::emu
