#include "engine/workloads/mlp/t5_block.hpp"

#include <fmt/format.h>

#include "engine/basics/printable.hpp"
#include "engine/weights/foreign_config.hpp"
#include "engine/workloads/mlp/model.hpp"

namespace shard {

namespace {

[[noreturn]] void refuse_model(const ForeignModel& model, const std::string& what,
                               const std::string& expected, const std::string& given) {
  throw Error(Code::file, "{}: {}: expected {}, given {}", model.source, what, expected, given);
}

/// Refuses options that change what a block computes: it must be wo(relu(wi x)). Others of a T5 are read past.
void require_plain_block(const ForeignModel& model) {
  ForeignConfig config(model);
  if (const std::string family = config.text("model_type", "none"); family != "t5")
    config.refuse_value("model_type", "t5", family);
  const std::string activation = config.text("feed_forward_proj", "relu");
  const bool has_gate = activation.starts_with("gated-");
  if (activation != "relu")
    config.refuse_value(
        "feed_forward_proj",
        has_gate ? "relu (this block has a gate, a third matrix; two layers have none)" : "relu", activation);
  config.require("is_gated_act", "false");
  config.require("dense_act_fn", "relu");
  config.require("quantization_config", "none");
  for (const char* of_others : {"vocab_size",
                                "d_model",
                                "d_kv",
                                "d_ff",
                                "num_layers",
                                "num_decoder_layers",
                                "num_heads",
                                "relative_attention_num_buckets",
                                "relative_attention_max_distance",
                                "layer_norm_epsilon",
                                "decoder_start_token_id",
                                "tie_word_embeddings",
                                "scale_decoder_outputs",
                                "n_positions",
                                "output_past",
                                "hidden_size",
                                "head_dim",
                                "num_hidden_layers",
                                "num_attention_heads",
                                "is_decoder"})
    config.text(of_others, "");
  config.require_known();
}

/// "encoder.block.3.layer.1.DenseReluDense.", the prefix of wi.weight and wo.weight.
std::string before_names(const std::string& stack, const std::string& number) {
  return fmt::format("{0}.block.{1}.layer.{2}.DenseReluDense.", stack, number, stack == "encoder" ? 1 : 2);
}

/// The number of blocks of the encoder or the decoder, which are numbered from 0.
Index count_blocks(const ForeignModel& model, const std::string& stack) {
  Index count = 0;
  while (model.parameters->contains(before_names(stack, std::to_string(count)) + "wi.weight")) ++count;
  return count;
}

/// "encoder.0 to encoder.2 (3 blocks) or decoder.0 (1 block)"
std::string listed_blocks(const ForeignModel& model) {
  std::string text;
  for (const std::string stack : {"encoder", "decoder"}) {
    const Index count = count_blocks(model, stack);
    if (count == 0) continue;
    text += fmt::format("{}{}.0", text.empty() ? "" : " or ", stack);
    if (count > 1) text += fmt::format(" to {}.{}", stack, count - 1);
    text += fmt::format(" ({} block{})", count, count == 1 ? "" : "s");
  }
  return text.empty() ? "a block of a T5, of which its files have none" : text;
}

/// Refuses another shape than (out, in), as PyTorch stores it.
void require_matrix(const ForeignModel& model, const std::string& name, const std::string& out,
                    const std::string& in) {
  const Shape given = model.parameters->shape(name);
  const std::string expected = fmt::format("({}, {})", out, in);
  if (to_string(given) != expected)
    refuse_model(model, name, expected + ", which d_model and d_ff say", to_string(given));
}

}  // namespace

ForeignNames t5_block(const ForeignModel& model, const std::string& block) {
  require_plain_block(model);
  const std::size_t dot = block.find('.');
  const std::string stack = block.substr(0, dot), number = dot == block.npos ? "" : block.substr(dot + 1);
  if ((stack != "encoder" && stack != "decoder") || number.empty() ||
      number.find_first_not_of("0123456789") != number.npos)
    throw Error(Code::usage, "--block: expected a block of a T5, such as encoder.0, given {}",
                block.empty() ? "''" : printable(block, 60));
  const std::string before = before_names(stack, number);
  if (!model.parameters->contains(before + "wi.weight"))
    refuse_model(model, "--block", listed_blocks(model), printable(block, 60));
  const std::string d_model = model.hyper_parameter("d_model", "512");
  const std::string d_ff = model.hyper_parameter("d_ff", "2048");
  require_matrix(model, before + "wi.weight", d_ff, d_model);
  require_matrix(model, before + "wo.weight", d_model, d_ff);
  return {{layer_name(0), {before + "wi.weight", true}}, {layer_name(1), {before + "wo.weight", true}}};
}

}  // namespace shard
