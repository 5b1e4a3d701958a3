#pragma once

/// Values for exact problems.

#include <map>
#include <string>

#include "engine/basics/host_tensor.hpp"
#include "engine/device/device.hpp"
#include "engine/layers/arithmetic.hpp"
#include "engine/workloads/initial_values.hpp"
#include "engine/workloads/random.hpp"

namespace shard::exact {

/// `scale` times random integers from `low` to `high`.
HostTensor integers(Shape shape, const CounterRandom& random, int low, int high, float scale = 1);
/// A matrix with two entries ±1 in each column: values at most double in each layer.
HostTensor sparse_signs(Shape shape, const CounterRandom& random);

/// The grid for transformers of these sizes with weights −2..2. A power of two scales scores and logits to a
/// few units.
Arithmetic grid_of(Index model_dim, Index head_dim);
/// Weights −2..2. Norms have no 0, since the weights behind it would have no gradient.
std::map<std::string, HostTensor> transformer_weights(const std::vector<Parameter>& parameters,
                                                      std::uint64_t seed);

}  // namespace shard::exact
