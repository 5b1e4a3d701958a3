#include "engine/workloads/decoder/mistral.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "engine/basics/printable.hpp"
#include "engine/weights/foreign_config.hpp"
#include "engine/workloads/decoder/foreign_tensors.hpp"
#include "engine/workloads/mlp/model.hpp"

namespace shard {

namespace {

/// The base of the angles: in rope_parameters (transformers 5), or in the older places. Other angles than
/// those of the base change results, and no size.
double rope_base(ForeignConfig& config, double otherwise) {
  double base = config.number("rope_theta", otherwise, 1.0);
  for (const std::string name : {"rope_scaling", "rope_parameters"}) {
    config.require_object(name);
    config.require_for_values(name + ".type", "default");
    config.require_for_values(name + ".rope_type", "default");
    for (const char* of_other_types :
         {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
          "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "short_factor",
          "long_factor", "short_mscale", "long_mscale", "finetuned", "truncate"})
      config.text(name + '.' + of_other_types, "");
    if (config.number(name + ".partial_rotary_factor", 1.0, 0.0) != 1)
      config.refuse_value(name + ".partial_rotary_factor", "1",
                          config.text(name + ".partial_rotary_factor", ""));
    base = config.number(name + ".rope_theta", base, 1.0);
  }
  return base;
}

struct Family {
  const char* name;
  bool is_mixture, is_tied, has_bias;
  Index vocabulary, model_dim, hidden_dim, blocks, heads;
  Index key_heads;  // 0: as many as heads
  Index head_dim;   // 0: the width of the residual stream, divided by the heads
  Index positions;
  double epsilon, rope_base;
  Index window;  // 0: none
  bool has_window;
};
/// The defaults of transformers' config classes.
constexpr std::array families = {
    Family{"llama", false, false, false, 32000, 4096, 11008, 32, 32, 0, 0, 2048, 1e-6, 1e4, 0, false},
    Family{"mistral", false, false, false, 32000, 4096, 14336, 32, 32, 8, 0, 4096 * 32, 1e-6, 1e4, 4096,
           true},
    Family{"mixtral", true, false, false, 32000, 4096, 14336, 32, 32, 8, 0, 4096 * 32, 1e-5, 1e6, 0, true},
    Family{"qwen2", false, false, true, 151936, 4096, 22016, 32, 32, 32, 0, 32768, 1e-6, 1e4, 4096, true},
    Family{"gemma", false, true, false, 256000, 3072, 24576, 28, 16, 16, 256, 8192, 1e-6, 1e4, 0, false}};

/// The window of all layers. A Qwen2 has one from a layer on, if it says so, and then these must be all or none.
/// A list of the layers' types must say the same.
std::optional<Index> window_of(ForeignConfig& config, const Family& family, const DecoderModel& m) {
  Index window = config.count_or_null("sliding_window", config.is_null("sliding_window") ? 0 : family.window);
  if (!family.has_window && window > 0 && window < m.positions)
    config.refuse_value("sliding_window", fmt::format("null, as a {} has none", family.name),
                        std::to_string(window));
  if (!family.has_window) window = 0;
  const bool is_qwen = family.name == std::string("qwen2");
  const Index first = config.number<Index>("max_window_layers", 28, 0);
  if (is_qwen && (!config.truth("use_sliding_window", false) || first >= m.num_blocks)) window = 0;
  const std::string type = config.same_in_each("layer_types", m.num_blocks);
  if (!type.empty() && type != "full_attention" && (type != "sliding_attention" || window == 0))
    config.refuse_value("layer_types", window == 0 ? "full_attention" : "full_attention or sliding_attention",
                        type);
  if (is_qwen && type == "full_attention") window = 0;
  if (is_qwen && type.empty() && window > 0 && first > 0)
    config.refuse_value("max_window_layers", fmt::format("0, or the {} layers or more", m.num_blocks),
                        std::to_string(first));
  return window > 0 ? std::optional(window) : std::nullopt;
}

DecoderModel sizes(ForeignConfig& config, const Family& family) {
  DecoderModel m;
  m.vocabulary = config.count("vocab_size", family.vocabulary);
  m.model_dim = config.count("hidden_size", family.model_dim);
  m.hidden_dim = config.count("intermediate_size", family.hidden_dim);
  m.num_blocks = config.count("num_hidden_layers", family.blocks);
  m.heads = config.count("num_attention_heads", family.heads);
  const bool has_all = family.key_heads == 0 || config.is_null("num_key_value_heads");
  m.key_heads = config.count_or_null("num_key_value_heads", has_all ? m.heads : family.key_heads);
  m.head_dim = config.count_or_null(
      "head_dim", family.head_dim > 0 ? family.head_dim : std::max<Index>(m.model_dim / m.heads, 1));
  m.positions = config.count("max_position_embeddings", family.positions);
  m.epsilon = static_cast<float>(config.number("rms_norm_eps", family.epsilon, 0.0, 1e30));
  m.rope_base = rope_base(config, family.rope_base);
  m.has_bias = family.has_bias;
  if (family.is_mixture) {
    m.experts = config.count("num_local_experts", 8);
    config.require_same("num_experts", m.experts);
    m.top_k = config.count("num_experts_per_tok", 2);
  }
  return m;
}

void require_countable(const ForeignConfig& config, const DecoderModel& m) {
  const double blocks = 1.0 * m.num_blocks, experts = std::max(1.0 * m.experts, 1.0);
  const double attention = (2.0 * m.heads + 2.0 * m.key_heads) * m.head_dim;
  const double feed_forward = experts * (3.0 * m.hidden_dim + 1);
  config.require_countable(blocks * (7 + 3 * experts),
                           m.model_dim * (blocks * (attention + feed_forward) + 2.0 * m.vocabulary));
}

void require_same_network(ForeignConfig& config, const DecoderModel& m) {
  config.require_for_values("hidden_act", "silu");
  config.require_for_values("hidden_activation", "silu");
  if (m.has_bias)
    config.text("attention_bias", "");  // a Qwen2 has biases whatever this says
  else
    config.require("attention_bias", "false");
  config.require("mlp_bias", "false");
  config.require_for_values("pretraining_tp", "1");
  config.require_for_values("output_router_logits", "false");
  config.require("quantization_config", "none");
  if (m.heads % m.key_heads != 0)
    config.refuse_value("num_key_value_heads", fmt::format("a number that divides the {} heads", m.heads),
                        std::to_string(m.key_heads));
  if (m.head_dim % 2 != 0) config.refuse_value("head_dim", "an even number", std::to_string(m.head_dim));
  if (m.top_k > m.experts)
    config.refuse_value("num_experts_per_tok", fmt::format("at most the {} experts", m.experts),
                        std::to_string(m.top_k));
  config.require_known();
}

}  // namespace

DecoderModel mistral_model(const ForeignModel& model, Reading reading) {
  ForeignConfig config(model, reading);
  const std::string name = config.require_family(false);
  const Family& family = *std::ranges::find(families, name, &Family::name);
  DecoderModel m = sizes(config, family);
  require_countable(config, m);
  m.window = window_of(config, family, m);
  const bool says_tied = config.truth("tie_word_embeddings", family.is_tied);
  require_same_network(config, m);
  m.is_tied = has_tied_head(model, {"model.embed_tokens.weight"}, says_tied);
  m.how = Arithmetic::real(m.head_dim);
  // Older files have the frequencies of the rotary positions, which follow from config.json.
  if (model.parameters)
    require_tensors(model, m.parameters(), mistral_names(m, mistral_table(model, m)),
                    [](const std::string& stored) { return stored.ends_with("rotary_emb.inv_freq"); });
  return m;
}

std::string mistral_table(const ForeignModel& model, const DecoderModel& network) {
  std::vector<std::string> names = {"model.embed_tokens.weight"};
  if (network.is_tied) names.push_back("lm_head.weight");
  return stored_table(model, names);
}

ForeignNames mistral_names(const DecoderModel& m, const std::string& table) {
  ForeignNames names = {{embedding_name(), {table}}, {final_norm_name(), {"model.norm.weight"}}};
  if (!m.is_tied) names[head_name()] = {"lm_head.weight"};
  for (Index b = 0; b < m.num_blocks; ++b) {
    auto theirs = [&](const char* name) { return fmt::format("model.layers.{}.{}.weight", b, name); };
    names[block_name(b, "attention_norm")] = {theirs("input_layernorm")};
    names[block_name(b, "feed_forward_norm")] = {theirs("post_attention_layernorm")};
    names[block_name(b, "query")] = {theirs("self_attn.q_proj"), true};
    names[block_name(b, "key")] = {theirs("self_attn.k_proj"), true};
    names[block_name(b, "value")] = {theirs("self_attn.v_proj"), true};
    names[block_name(b, "output")] = {theirs("self_attn.o_proj"), true};
    for (const char* part : {"query", "key", "value"})
      if (m.has_bias)
        names[block_name(b, std::string(part) + "_bias")] = {
            fmt::format("model.layers.{}.self_attn.{}_proj.bias", b, part[0]), false, true};
    if (m.is_mixture()) names[block_name(b, "router")] = {theirs("block_sparse_moe.gate"), true};
    for (Index e = 0; e < std::max<Index>(m.experts, 1); ++e) {
      const std::string expert = fmt::format("model.layers.{}.block_sparse_moe.experts.{}.", b, e);
      const std::string plain = fmt::format("model.layers.{}.mlp.", b);
      const std::array<std::array<const char*, 3>, 3> matrices = {
          {{"gate", "w1", "gate_proj"}, {"up", "w3", "up_proj"}, {"down", "w2", "down_proj"}}};
      for (const auto& [ours, of_expert, of_plain] : matrices)
        names[feed_forward_name(m, b, e, ours)] = {
            (m.is_mixture() ? expert + of_expert : plain + of_plain) + ".weight", true};
    }
  }
  return names;
}

}  // namespace shard
