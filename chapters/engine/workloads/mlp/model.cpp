#include "engine/workloads/mlp/model.hpp"

#include <fmt/format.h>

#include <charconv>

#include "engine/basics/printable.hpp"
#include "engine/weights/checkpoint.hpp"
#include "engine/weights/foreign_config.hpp"

namespace shard {

Index Model::weights() const {
  Index sum = 0;
  for (Index layer = 0; layer < num_layers; ++layer) sum += weights(layer);
  return sum;
}

double stack_elements(const Model& model) {
  return static_cast<double>(model.num_layers) * static_cast<double>(model.model_dim) *
         static_cast<double>(model.hidden_dim);
}

std::string layer_name(Index layer) {
  return fmt::format("layer_{}/weights", layer);
}

void refuse_parameter(const Checkpoint& from, const std::string& name, const std::string& expected,
                      const std::string& given) {
  throw Error(Code::file, "{}: {}: expected {}, given {}", from.source(), name, expected, given);
}

void require_parameter(const Checkpoint& from, const std::string& name, const Shape& expected) {
  const Shape given = from.shape(name);
  if (given == expected) return;
  const bool is_transposed = given == Shape(expected.rbegin(), expected.rend());
  refuse_parameter(from, name, to_string(expected),
                   to_string(given) + (is_transposed ? ": PyTorch stores (out, in)?" : ""));
}

Shape matrix_shape(const Checkpoint& checkpoint, const std::string& name) {
  const Shape shape = checkpoint.shape(name);
  if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0)
    refuse_parameter(checkpoint, name, "a matrix of at least 1 by 1", to_string(shape));
  return shape;
}

namespace {

bool is_layer_name(const std::string& name, Index num_layers) {
  constexpr std::string_view before = "layer_";
  Index layer = -1;
  if (name.starts_with(before))
    std::from_chars(name.data() + before.size(), name.data() + name.size(), layer);
  return layer >= 0 && layer < num_layers && name == layer_name(layer);
}

}  // namespace

Model model_of(const Checkpoint& checkpoint) {
  Model model;
  model.num_layers = static_cast<Index>(checkpoint.names().size());
  if (model.num_layers == 0) refuse_parameter(checkpoint, layer_name(0), "a matrix", "no parameter at all");
  for (const std::string& name : checkpoint.names())
    if (!is_layer_name(name, model.num_layers))
      refuse_parameter(
          checkpoint, "parameters",
          "layer_0/weights, layer_1/weights, ... without a gap, and no other (layers have no biases)",
          fmt::format("{}, one of them named {}, which is unknown", model.num_layers, printable(name, 60)));
  const Shape first = matrix_shape(checkpoint, layer_name(0));
  model.model_dim = first[0];
  model.hidden_dim = first[1];
  for (Index layer = 0; layer < model.num_layers; ++layer)
    require_parameter(checkpoint, layer_name(layer), model.shape(layer));
  return model;
}

std::vector<std::string> layer_names(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (Index l = 0; l < model_of(checkpoint).num_layers; ++l) names.push_back(layer_name(l));
  return names;
}

Index layers_in_blocks(const Checkpoint& checkpoint) {
  const Index layers = model_of(checkpoint).num_layers;
  if (layers % 2 != 0)
    throw Error(Code::file,
                "{}: tensor parallel cuts blocks of two layers: expected an even number of layers, given {}",
                checkpoint.source(), layers);
  return layers;
}

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
