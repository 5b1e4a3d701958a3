#include "engine/workloads/decoder/foreign_config.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "engine/basics/ranges.hpp"

namespace shard {

std::string ForeignConfig::require_family(const std::vector<std::string>& families) {
  const std::string given = text("model_type", "none");
  if (std::ranges::find(families, given) != families.end()) return given;
  const bool is_decoder = given == "llama" || given == "mistral" || given == "mixtral";
  refuse_value("model_type", fmt::to_string(fmt::join(families, " or ")),
               given == "t5" ? "t5, which the variants t5-... read"
               : is_decoder  ? given + ", which the variants without t5- read"
                             : given);
}

void ForeignConfig::require_countable(double matrices, double numbers) const {
  constexpr double most_matrices = 1 << 20, most_numbers = 1e15;
  if (matrices > most_matrices || numbers > most_numbers)
    throw Error(Code::file,
                "{}: config.json: size of the network: expected at most {:.0f} matrices and {:.2g} "
                "parameters, given {:.0f} and {:.2g}",
                model_.source, most_matrices, most_numbers, matrices, numbers);
}

void ForeignConfig::require_known() const {
  static const std::set<std::string> harmless = [] {
    std::istringstream names(
        "architectures attention_dropout bos_token_id dtype eos_token_id id2label initializer_range label2id "
        "model_type output_attentions pad_token_id output_hidden_states problem_type return_dict torch_dtype "
        "router_aux_loss_coef transformers_version use_cache _name_or_path _attn_implementation_autoset "
        "router_jitter_noise is_encoder_decoder chunk_size_feed_forward rope_parameters "
        "experts_implementation");
    return std::set<std::string>(std::istream_iterator<std::string>(names), {});
  }();
  for (const auto& [name, value] : model_.config)
    if (!known_.contains(name) && !harmless.contains(name) && value != "null" &&
        !name.starts_with("id2label.") && !name.starts_with("label2id.") &&
        !name.starts_with("task_specific_params") && !name.starts_with("chronos_config"))  // of another task
      refuse_value(name, "no hyper-parameter that this program does not know", value);
}

bool has_tied_head(const ForeignModel& model, const std::string& embedding, bool config_ties) {
  constexpr const char* head = "lm_head.weight";
  if (!config_ties || !model.parameters || !model.parameters->contains(head)) return config_ties;
  const Shape shape = model.parameters->shape(embedding);
  if (shape.size() != 2 || model.parameters->shape(head) != shape) return false;
  const Index most = std::max<Index>(1, piece_elements / std::max<Index>(1, shape[1]));
  for (Index begin = 0; begin < shape[0]; begin += most) {
    const Index end = std::min(begin + most, shape[0]);
    if (model.parameters->read(embedding, 0, begin, end) != model.parameters->read(head, 0, begin, end))
      return false;
  }
  return true;
}

void require_tensors(const ForeignModel& model, const std::vector<Parameter>& parameters,
                     const ForeignNames& names, bool (*is_ignored)(const std::string& name)) {
  std::set<std::string> known = {"lm_head.weight"};  // a tied head may be stored
  for (const Parameter& p : parameters) {
    const ForeignName& stored = names.at(p.name);
    known.insert(stored.name);
    const Shape expected = stored.is_transposed ? Shape{p.shape[1], p.shape[0]} : p.shape;
    const Shape given = model.parameters->shape(stored.name);
    if (given != expected)
      throw Error(Code::file, "{}: {}: expected {}, which config.json says, given {}", model.source,
                  stored.name, to_string(expected), to_string(given));
  }
  for (const std::string& name : model.parameters->names())
    if (!known.contains(name) && !is_ignored(name))
      throw Error(Code::file, "{}: {}: expected the parameters of a {} alone, given another one",
                  model.source, printable(name, 120), model.hyper_parameter("model_type", "none"));
}

}  // namespace shard
