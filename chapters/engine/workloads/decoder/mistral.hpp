#pragma once

/// Networks of Hugging Face's transformers that are decoders of this kind.

#include <string>

#include "engine/weights/foreign_model.hpp"
#include "engine/workloads/decoder/model.hpp"

namespace shard {

/// The decoder that a Llama, Mistral, Mixtral or Qwen2 is, as Hugging Face's `save_pretrained` writes it. For
/// sizes alone, also that of a Gemma, which scales its embedding and adds 1 to its norms' weights.
/// \throws Error file for another family, for unknown hyper-parameters that would change what is read, and for
/// parameters of other shapes than the hyper-parameters give
DecoderModel mistral_model(const ForeignModel& model, Reading reading = Reading::values);
/// The stored names of its parameters. `table`: that of the embedding.
ForeignNames mistral_names(const DecoderModel& model, const std::string& table = "model.embed_tokens.weight");
/// The name under which its embedding is stored: a tied one may be stored as the head. \throws Error file
std::string mistral_table(const ForeignModel& model, const DecoderModel& network);

}  // namespace shard
