#pragma once

/// Values for exact problems.

#include "engine/basics/ranges.hpp"
#include "engine/device/device.hpp"
#include "engine/layers/arithmetic.hpp"
#include "engine/workloads/initial_values.hpp"
#include "engine/workloads/random.hpp"
#include "engine/workloads/workload.hpp"

namespace shard::exact {

/// `scale` times random integers from `low` to `high`.
HostTensor integers(Shape shape, const CounterRandom& random, int low, int high, float scale = 1);
/// A matrix with two entries ±1 in each column: values at most double in each layer.
HostTensor sparse_signs(Shape shape, const CounterRandom& random);

/// The grid for transformers of these sizes with weights −2..2. A power of two scales scores and logits to a
/// few units.
Arithmetic grid_of(Index model_dim, Index head_dim);
/// What gradients of transformers of these sizes are multiples of, on their own grid or on that of exact problems.
float gradient_unit(const Arithmetic& how, Index model_dim, Index head_dim);
/// A transformer's exact problem. Weights are −2..2; norms have no 0, since the weights behind it would have no
/// gradient. Output gradients are multiples of 16 up to 64, so that few gradients round to 0.
ExactProblem transformer_problem(std::shared_ptr<const Workload> network, Index batch, std::uint64_t seed);
/// Rows of random ids, `labels` labels at the end of each. About one label in ten is missing.
HostTensor random_tokens(Shape shape, Index labels, Index vocabulary, std::uint64_t seed);

}  // namespace shard::exact
