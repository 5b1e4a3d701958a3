#include "engine/weights/foreign_config.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

namespace shard {

namespace {

using Names = std::set<std::string>;

Names words(const char* text) {
  std::istringstream names(text);
  return Names(std::istream_iterator<std::string>(names), {});
}

struct Family {
  const char* name;
  bool is_t5 = false, has_sizes_alone = false;
  FamilyDefaults defaults = {};
};
constexpr std::array families = {Family{"llama"},
                                 Family{"mistral"},
                                 Family{"mixtral"},
                                 Family{"qwen2"},
                                 Family{"gemma", false, true},
                                 Family{"t5", true, false, {.end_token = 1, .ties_the_head = true}}};

/// What training, generation, other tasks, and tools keep in config.json. An object has all its members.
const Names& harmless() {
  static const Names names = words(
      // the library
      "architectures model_type dtype torch_dtype transformers_version use_cache return_dict torchscript "
      "is_encoder_decoder tokenizer_class prefix name_or_path output_attentions output_hidden_states "
      "chunk_size_feed_forward use_bfloat16 tf_legacy_loss attn_implementation experts_implementation "
      "use_flash_attention use_flash_attn use_flash_attention_2 flash_attention flash_attn "
      "use_memory_efficient_attention use_xformers use_liger_kernel use_liger fused_kernels compile_config "
      // training
      "attention_dropout hidden_dropout residual_dropout embedding_dropout dropout dropout_rate "
      "classifier_dropout attention_probs_dropout_prob hidden_dropout_prob resid_pdrop embd_pdrop attn_pdrop "
      "initializer_range initializer_factor init_std gradient_checkpointing gradient_checkpointing_kwargs "
      "use_gradient_checkpointing router_aux_loss_coef router_jitter_noise neftune_noise_alpha z_loss_coef "
      "label_smoothing fp16 bf16 fp32 seed training_args trainer_state "
      "peft_config lora_config dataset datasets base_model base_model_name_or_path license tags "
      // generation
      "max_length max_new_tokens min_length min_new_tokens early_stopping max_time do_sample num_beams "
      "num_beam_groups diversity_penalty temperature top_k top_p min_p top_h typical_p epsilon_cutoff "
      "eta_cutoff repetition_penalty encoder_repetition_penalty length_penalty no_repeat_ngram_size "
      "encoder_no_repeat_ngram_size bad_words_ids force_words_ids stop_strings renormalize_logits "
      "constraints remove_invalid_values exponential_decay_length_penalty suppress_tokens "
      "begin_suppress_tokens sequence_bias token_healing guidance_scale num_return_sequences output_scores "
      "output_logits return_dict_in_generate penalty_alpha dola_layers cache_implementation cache_config "
      "low_memory generation_config "
      // tokens and texts
      "model_max_length max_sequence_length max_seq_length max_seq_len seq_length tokenizer_vocab_size "
      "vocab_file chat_template "
      // other tasks
      "id2label label2id num_labels problem_type finetuning_task task_specific_params chronos_config "
      "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout "
      // origins
      "is_llama_config model_name model_id quantized_by original_model created_by author version revision");
  return names;
}

/// Whether a tool or the library keeps names like this one for itself.
bool is_bookkeeping(const std::string& name) {
  for (const char* before : {"_", "unsloth_", "axolotl_", "transformers.js_config", "wandb_", "mergekit_"})
    if (name.starts_with(before)) return true;
  for (const char* after : {"_token_id", "_token_ids", "_version", "_dropout_prob"})
    if (name.ends_with(after)) return true;
  return false;
}

/// Names whose value says what all networks of these families do. Another value is another network.
const std::map<std::string, std::vector<std::string>>& usual_values() {
  static const auto values = [] {
    std::map<std::string, std::vector<std::string>> all = {
        {"norm_type", {"rmsnorm", "rms_norm", "RMSNorm"}},
        {"normalization", {"rmsnorm", "rms_norm", "RMSNorm"}},
        {"position_embedding_type", {"rope", "rotary"}},
        {"loss_type", {"ForCausalLM", "ForCausalLMLoss"}},
        {"ignore_index", {"-100"}},
        {"rope_interleaved", {"false"}},
        {"is_decoder", {"true", "false"}}};
    for (const char* factor :
         {"partial_rotary_factor", "rotary_pct", "rope_percent", "rope_ratio", "embedding_multiplier",
          "residual_multiplier", "residual_scale", "logits_scaling", "logit_scale", "scale_emb"})
      all[factor] = {"1.0", "1"};
    for (const char* part :
         {"is_causal", "causal", "use_rope", "use_rotary", "use_rotary_embeddings", "rotary", "use_rms_norm",
          "rms_norm", "pre_norm", "do_layer_norm_before", "norm_topk_prob"})
      all[part] = {"true"};
    return all;
  }();
  return values;
}

/// A value that names nothing. Members of an object that is not empty count by themselves.
bool is_nothing(const std::string& value) {
  static const Names nothing = {"null", "false", "\"\"", "[]", "{}", "object", "0", "0.0", "-0.0"};
  return nothing.contains(value);
}

bool changes_nothing(const std::string& name, const std::string& value) {
  const std::string outer = name.substr(0, name.find('.'));
  if (harmless().contains(outer) || is_bookkeeping(outer) || is_bookkeeping(name)) return true;
  if (const auto usual = usual_values().find(name); usual != usual_values().end())
    return value == "null" || std::ranges::find(usual->second, value) != usual->second.end();
  return is_nothing(value);
}

/// The families that a reading takes: "llama or mistral".
std::string taken(Reading reading, std::optional<bool> is_t5) {
  std::vector<std::string> names;
  for (const Family& f : families)
    if ((!f.has_sizes_alone || reading == Reading::sizes) && is_t5.value_or(f.is_t5) == f.is_t5)
      names.push_back(f.name);
  return fmt::to_string(fmt::join(names, " or "));
}

}  // namespace

void ForeignConfig::require_object(const std::string& name) {
  const std::string given = text(name, "{}");
  if (given != "object" && given != "{}") refuse_value(name, "an object or null", given);
}

std::string ForeignConfig::same_in_each(const std::string& name, Index length) {
  const std::string given = text(name, "");
  if (given.empty()) return "";
  const std::size_t begin = given.find('"') + 1, end = given.find('"', begin);
  const std::string word = end == given.npos ? "" : given.substr(begin, end - begin);
  const std::string each = fmt::format("\"{}\"", word);
  std::string expected = "[";
  for (Index i = 0; i < length && expected.size() < given.size(); ++i) expected += (i == 0 ? "" : ",") + each;
  if (given != expected + "]")
    refuse_value(name, fmt::format("the same text for each of the {} layers", length), given);
  return word;
}

FamilyDefaults defaults_of_family(const std::string& name) {
  const auto found = std::ranges::find(families, name, &Family::name);
  return found == families.end() ? FamilyDefaults() : found->defaults;
}

std::string ForeignConfig::require_family(bool is_t5) {
  const std::string given = text("model_type", "none");
  const auto found = std::ranges::find(families, given, &Family::name);
  if (found == families.end())
    refuse_value("model_type", taken(reading_, std::nullopt),
                 given == "gpt2" ? "gpt2, which map alone reads" : given);
  if (found->is_t5 != is_t5)
    refuse_value(
        "model_type", taken(reading_, is_t5),
        is_t5 ? given + ", which the variants without t5- read" : given + ", which the variants t5-... read");
  if (found->has_sizes_alone && reading_ == Reading::values)
    refuse_value("model_type", taken(reading_, std::nullopt),
                 given + ", of which costs, owns and map read the sizes");
  return given;
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
  for (const auto& [name, value] : model_.config) {
    if (known_.contains(name) || changes_nothing(name, value)) continue;
    const auto usual = usual_values().find(name);
    refuse_value(name,
                 usual == usual_values().end() ? "no hyper-parameter that this program does not know"
                                               : usual->second.front(),
                 value);
  }
}

}  // namespace shard
