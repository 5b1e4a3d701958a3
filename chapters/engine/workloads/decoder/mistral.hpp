#pragma once

#include "engine/weights/foreign_model.hpp"
#include "engine/workloads/decoder/model.hpp"

namespace shard {

/// The decoder that a Llama, Mistral or Mixtral is, as Hugging Face's `save_pretrained` writes it.
/// \throws Error file for another family, for unknown hyper-parameters that would change results, and for
/// parameters of other shapes than the hyper-parameters give
DecoderModel mistral_model(const ForeignModel& model);
/// The stored names of its parameters.
ForeignNames mistral_names(const DecoderModel& model);

}  // namespace shard
