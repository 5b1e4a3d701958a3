#pragma once

#include "engine/weights/foreign_model.hpp"
#include "engine/workloads/t5/model.hpp"

namespace shard {

/// A network of the family t5, as Hugging Face's `save_pretrained` writes it. It has a head of its own if its
/// files have one that differs from the embedding. \throws Error file for another family, for unknown
/// hyper-parameters that would change results, and for parameters whose shapes do not fit them
T5Model t5_model(const ForeignModel& model);
/// The stored names of its parameters.
ForeignNames t5_names(const T5Model& model);

}  // namespace shard
