#include <fmt/format.h>

#include "engine/basics/printable.hpp"
#include "engine/workloads/mlp/model.hpp"

namespace shard {

namespace {

[[noreturn]] void refuse_model(const ForeignModel& model, const std::string& what,
                               const std::string& expected, const std::string& given) {
  throw Error(Code::file, fmt::format("{}: {}: expected {}, given {}", model.source, what, expected, given));
}

/// Refuses another value of a hyper-parameter than T5's default.
void require_hyper_parameter(const ForeignModel& model, const std::string& name, const std::string& expected,
                             const std::string& otherwise, const std::string& why = "") {
  const std::string& given = model.hyper_parameter(name, otherwise);
  if (given != expected) refuse_model(model, name, expected + why, printable(given, 60));
}

/// Refuses options that change what a block computes: it must be wo(relu(wi x)).
void require_plain_block(const ForeignModel& model) {
  require_hyper_parameter(model, "model_type", "t5", "none");
  const std::string activation = model.hyper_parameter("feed_forward_proj", "relu");
  const bool has_gate = activation.starts_with("gated-");
  require_hyper_parameter(model, "feed_forward_proj", "relu", "relu",
                          has_gate ? " (this block has a gate, a third matrix; two layers have none)" : "");
  require_hyper_parameter(model, "is_gated_act", "false", "false");
  require_hyper_parameter(model, "dense_act_fn", "relu", "relu");
  require_hyper_parameter(model, "quantization_config", "none", "none");
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
    throw Error(Code::usage, fmt::format("--block: expected a block of a T5, such as encoder.0, given {}",
                                         block.empty() ? "''" : printable(block, 60)));
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
