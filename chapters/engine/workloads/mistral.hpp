#pragma once

#include "engine/foreign_model.hpp"
#include "engine/workloads/decoder_model.hpp"

namespace shard {

/// A network of the family mistral or mixtral, as Hugging Face's `save_pretrained` writes it, as a decoder.
/// \throws Error file for another family, for hyper-parameters that would change results and are not known
/// here, and for parameters of other shapes than the hyper-parameters say
DecoderModel mistral_model(const ForeignModel& model);
/// Where its parameters lie.
ForeignNames mistral_names(const DecoderModel& model);

}  // namespace shard
