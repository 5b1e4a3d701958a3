#pragma once

#include "engine/foreign_model.hpp"
#include "engine/workloads/t5_model.hpp"

namespace shard {

/// A network of the family t5, as Hugging Face's `save_pretrained` writes it. It has a head of its own where
/// its files have one that is not the embedding. \throws Error file for another family, for hyper-parameters that
/// would change results and are not known here, and for parameters of other shapes than the hyper-parameters say
T5Model t5_model(const ForeignModel& model);
/// Where its parameters lie.
ForeignNames t5_names(const T5Model& model);

}  // namespace shard
