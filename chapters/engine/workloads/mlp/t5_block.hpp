#pragma once

#include "engine/weights/foreign_model.hpp"

namespace shard {

/// The feed-forward block of a T5, wo(relu(wi x)) without biases, as a stack of two layers. `block` is
/// "encoder.3" or "decoder.0". Source: Raffel et al. 2020, §2.1; transformers, T5DenseActDense.
/// \throws Error file when the network is no T5, its block computes something else, or does not exist; usage
/// for another form of `block`
ForeignNames t5_block(const ForeignModel& model, const std::string& block);

}  // namespace shard
