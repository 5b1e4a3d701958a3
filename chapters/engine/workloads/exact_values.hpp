#pragma once

/// Values of which exact problems are made.

#include <map>
#include <string>

#include "engine/device/device.hpp"
#include "engine/host_tensor.hpp"
#include "engine/layers/arithmetic.hpp"
#include "engine/workloads/initial_values.hpp"
#include "engine/workloads/random.hpp"

namespace shard::exact {

/// `scale` times integers from low to high.
HostTensor integers(Shape shape, const CounterRandom& random, int low, int high, float scale = 1);
/// A matrix with two entries ±1 a column: values grow by 2 a layer at most.
HostTensor sparse_signs(Shape shape, const CounterRandom& random);

/// Arithmetic on a grid that fits transformers of these sizes with weights −2..2: scores and logits are
/// scaled to a few units, by a power of two.
Arithmetic grid_of(Index model_dim, Index head_dim);
/// Such weights. Those of norms, vectors, are not 0: weights behind them would have no gradient.
std::map<std::string, HostTensor> transformer_weights(const std::vector<Parameter>& parameters,
                                                      std::uint64_t seed);

}  // namespace shard::exact
