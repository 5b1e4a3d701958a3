#pragma once

/// Tensors as host arrays, for whoever computes on the host. The one header outside emu/ that knows xtensor.

#if __has_include(<xtensor/containers/xarray.hpp>)
#include <xtensor/containers/xadapt.hpp>
#include <xtensor/containers/xarray.hpp>
#else
#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>
#endif

#include "engine/device/device.hpp"

namespace shard {

/// float32 values in the host's memory, row-major.
using HostArray = xt::xarray<float>;

inline HostArray to_host_array(const Tensor& t) {
  std::vector<float> values = t.to_host();
  std::vector<std::size_t> shape(t.shape().begin(), t.shape().end());
  return xt::adapt(values, shape);
}

inline Tensor to_device(const HostArray& array) {
  return Tensor::from_host(Shape(array.shape().begin(), array.shape().end()), {array.data(), array.size()});
}

}  // namespace shard
