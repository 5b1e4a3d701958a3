#pragma once

/// Values of which exact problems are made.

#include "engine/device/device.hpp"
#include "engine/host_tensor.hpp"
#include "engine/workloads/random.hpp"

namespace shard::exact {

/// `scale` times integers from low to high.
HostTensor integers(Shape shape, const CounterRandom& random, int low, int high, float scale = 1);
/// A matrix with two entries ±1 a column: values grow by 2 a layer at most.
HostTensor sparse_signs(Shape shape, const CounterRandom& random);

}  // namespace shard::exact
