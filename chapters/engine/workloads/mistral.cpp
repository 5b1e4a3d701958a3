#include "engine/workloads/mistral.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <set>

#include "engine/printable.hpp"

namespace shard {

namespace {

/// Reads hyper-parameters, and knows which it was asked for: the others must be harmless.
class Config {
 public:
  explicit Config(const ForeignModel& model) : model_(model) {}

  /// A number of the family's config class, which has `otherwise` where the file says nothing.
  template <class Number>
  Number number(const std::string& name, Number otherwise, Number least) {
    const std::string given = text(name, "");
    if (given.empty()) return otherwise;
    Number value{};
    const auto [stop, error] = std::from_chars(given.data(), given.data() + given.size(), value);
    if (error != std::errc() || stop != given.data() + given.size() || !(value >= least))
      refuse_value(name, fmt::format("a number of {} or more", least), given);
    return value;
  }
  Index count(const std::string& name, Index otherwise) { return number<Index>(name, otherwise, 1); }
  /// What the file says; `otherwise` for nothing, or null.
  std::string text(const std::string& name, const std::string& otherwise) {
    known_.insert(name);
    return model_.hyper_parameter(name, otherwise);
  }
  bool is_null(const std::string& name) const {
    const auto found = model_.config.find(name);
    return found != model_.config.end() && found->second == "null";
  }
  /// One that must have this value, as nothing else is computed here.
  void require(const std::string& name, const std::string& expected) {
    const std::string given = text(name, expected);
    if (given != expected) refuse_value(name, expected, given);
  }
  /// Refuses what nobody has asked for, unless it changes no result of a forward and a backward pass.
  void require_known() const;

  [[noreturn]] void refuse_value(const std::string& name, const std::string& expected,
                                 const std::string& given) const {
    throw Error(Code::file, fmt::format("{}: config.json: {}: expected {}, given {}", model_.source,
                                        printable(name, 60), expected, printable(given, 60)));
  }

 private:
  const ForeignModel& model_;
  std::set<std::string> known_;
};

void Config::require_known() const {
  static const std::set<std::string> harmless = {"architectures",
                                                 "attention_dropout",
                                                 "bos_token_id",
                                                 "dtype",
                                                 "eos_token_id",
                                                 "id2label",
                                                 "initializer_range",
                                                 "label2id",
                                                 "model_type",
                                                 "output_attentions",
                                                 "pad_token_id",
                                                 "output_hidden_states",
                                                 "problem_type",
                                                 "return_dict",
                                                 "torch_dtype",
                                                 "router_aux_loss_coef",
                                                 "transformers_version",
                                                 "use_cache",
                                                 "_name_or_path",
                                                 "_attn_implementation_autoset",
                                                 "router_jitter_noise",
                                                 "is_encoder_decoder",
                                                 "chunk_size_feed_forward",
                                                 "rope_parameters",
                                                 "experts_implementation"};
  for (const auto& [name, value] : model_.config)
    if (!known_.contains(name) && !harmless.contains(name) && value != "null" &&
        !name.starts_with("id2label.") && !name.starts_with("label2id."))
      refuse_value(name, "no hyper-parameter that this program does not know", value);
}

/// The base of the angles, in the spelling of transformers 5, rope_parameters, and in the older one.
double rope_base(Config& config, double otherwise) {
  config.require("rope_parameters.rope_type", "default");
  config.require("rope_scaling.rope_type", "default");
  config.require("rope_scaling.type", "default");
  config.text("rope_scaling", "");
  const double older = config.number("rope_theta", otherwise, 1.0);
  return config.number("rope_parameters.rope_theta", older, 1.0);
}

struct Family {
  bool is_mixture;
  Index vocabulary, model_dim, hidden_dim, blocks, heads, key_heads, positions;
  double epsilon, rope_base;
  std::optional<Index> window;
};
/// The values that transformers' config classes have where a file says nothing.
constexpr Family mistral_family = {false, 32000, 4096, 14336, 32, 32, 8, 4096 * 32, 1e-6, 1e4, 4096};
constexpr Family mixtral_family = {true, 32000, 4096, 14336, 32, 32, 8, 4096 * 32, 1e-5, 1e6, std::nullopt};

DecoderModel sizes(Config& config, const Family& family) {
  DecoderModel m;
  m.vocabulary = config.count("vocab_size", family.vocabulary);
  m.model_dim = config.count("hidden_size", family.model_dim);
  m.hidden_dim = config.count("intermediate_size", family.hidden_dim);
  m.num_blocks = config.count("num_hidden_layers", family.blocks);
  m.heads = config.count("num_attention_heads", family.heads);
  m.key_heads =
      config.count("num_key_value_heads", config.is_null("num_key_value_heads") ? m.heads : family.key_heads);
  m.head_dim = config.count("head_dim", m.model_dim / m.heads);
  m.positions = config.count("max_position_embeddings", family.positions);
  m.epsilon = static_cast<float>(config.number("rms_norm_eps", family.epsilon, 0.0));
  m.rope_base = rope_base(config, family.rope_base);
  const Index window = config.count("sliding_window", 0);
  if (window > 0) m.window = window;
  if (window == 0 && !config.is_null("sliding_window")) m.window = family.window;
  if (family.is_mixture) {
    m.experts = config.count("num_local_experts", 8);
    m.top_k = config.count("num_experts_per_tok", 2);
  }
  return m;
}

void require_same_network(Config& config, const DecoderModel& m) {
  config.require("hidden_act", "silu");
  config.require("attention_bias", "false");
  config.require("mlp_bias", "false");
  config.require("output_router_logits", "false");
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

void require_shapes(const ForeignModel& model, const DecoderModel& m) {
  const ForeignNames names = mistral_names(m);
  for (const Parameter& p : m.parameters()) {
    const ForeignName& stored = names.at(p.name);
    const Shape expected = stored.is_transposed ? Shape{p.shape[1], p.shape[0]} : p.shape;
    const Shape given = model.parameters->shape(stored.name);
    if (given != expected)
      throw Error(Code::file, fmt::format("{}: {}: expected {}, which config.json says, given {}",
                                          model.source, stored.name, to_string(expected), to_string(given)));
  }
}

}  // namespace

DecoderModel mistral_model(const ForeignModel& model) {
  Config config(model);
  const std::string family = config.text("model_type", "none");
  if (family != "mistral" && family != "mixtral")
    config.refuse_value("model_type", "mistral or mixtral", family);
  DecoderModel m = sizes(config, family == "mixtral" ? mixtral_family : mistral_family);
  const std::string tied = config.text("tie_word_embeddings", "false");
  if (tied != "true" && tied != "false") config.refuse_value("tie_word_embeddings", "true or false", tied);
  m.is_tied = tied == "true";
  require_same_network(config, m);
  m.how = Arithmetic::real(m.head_dim);
  require_shapes(model, m);
  return m;
}

ForeignNames mistral_names(const DecoderModel& m) {
  ForeignNames names = {{embedding_name(), {"model.embed_tokens.weight"}},
                        {final_norm_name(), {"model.norm.weight"}}};
  if (!m.is_tied) names[head_name()] = {"lm_head.weight"};
  for (Index b = 0; b < m.num_blocks; ++b) {
    auto theirs = [&](const char* name) { return fmt::format("model.layers.{}.{}.weight", b, name); };
    names[block_name(b, "attention_norm")] = {theirs("input_layernorm")};
    names[block_name(b, "feed_forward_norm")] = {theirs("post_attention_layernorm")};
    names[block_name(b, "query")] = {theirs("self_attn.q_proj"), true};
    names[block_name(b, "key")] = {theirs("self_attn.k_proj"), true};
    names[block_name(b, "value")] = {theirs("self_attn.v_proj"), true};
    names[block_name(b, "output")] = {theirs("self_attn.o_proj"), true};
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
