#pragma once

/// The update of Adam.

#include <cmath>

#include "cuda/kernels/elements.hpp"

namespace shard::kernels {

struct AdamUpdate {
  float beta1, beta2, epsilon;  ///< of AdamSettings
  float rate, v_scale;          ///< of AdamStep

  SHARDBOOK_KERNEL void operator()(Index i, float* w, const float* g, float* m, float* v) const {
    const float gradient = g[i], weight = w[i], old_mean = m[i],
                old_variance = v[i];  // all read before any is written
    const float mean = beta1 * old_mean + (1 - beta1) * gradient;
    const float variance = beta2 * old_variance + (1 - beta2) * gradient * gradient;
    m[i] = mean;
    v[i] = variance;
    w[i] = weight - rate * mean / (sqrtf(variance) * v_scale + epsilon);
  }
};

}  // namespace shard::kernels
