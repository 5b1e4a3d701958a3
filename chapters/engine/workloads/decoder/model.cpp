#include "engine/workloads/decoder/model.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <set>

#include "engine/basics/printable.hpp"
#include "engine/workloads/decoder/foreign_config.hpp"
#include "engine/workloads/mlp/model.hpp"

namespace shard {

std::string block_name(Index block, const std::string& parameter) {
  return fmt::format("block_{}/{}", block, parameter);
}

std::string feed_forward_name(const DecoderModel& model, Index block, Index expert,
                              const std::string& parameter) {
  return model.is_mixture() ? fmt::format("block_{}/expert_{}/{}", block, expert, parameter)
                            : block_name(block, parameter);
}

std::string DecoderModel::describe() const {
  return fmt::format("{} blocks of {}, {} heads of {} ({} key-value heads), {}{}, {} tokens", num_blocks,
                     model_dim, heads, head_dim, key_heads,
                     is_mixture() ? fmt::format("{} experts of ", experts) : "hidden ", hidden_dim,
                     vocabulary);
}

std::vector<Parameter> DecoderModel::parameters() const {
  std::vector<Parameter> all;
  auto norm = [&](const std::string& name) { all.push_back({name, {model_dim}, 0, 1}); };
  auto matrix = [&](const std::string& name, Index in, Index out) {
    all.push_back({name, {in, out}, std::sqrt(3.0F / static_cast<float>(in))});
  };
  all.push_back({embedding_name(), {vocabulary, model_dim}, 1});
  for (Index b = 0; b < num_blocks; ++b) {
    norm(block_name(b, "attention_norm"));
    matrix(block_name(b, "query"), model_dim, query_width());
    matrix(block_name(b, "key"), model_dim, key_width());
    matrix(block_name(b, "value"), model_dim, key_width());
    matrix(block_name(b, "output"), query_width(), model_dim);
    norm(block_name(b, "feed_forward_norm"));
    if (is_mixture()) matrix(block_name(b, "router"), model_dim, experts);
    for (Index e = 0; e < std::max<Index>(experts, 1); ++e) {
      matrix(feed_forward_name(*this, b, e, "gate"), model_dim, hidden_dim);
      matrix(feed_forward_name(*this, b, e, "up"), model_dim, hidden_dim);
      matrix(feed_forward_name(*this, b, e, "down"), hidden_dim, model_dim);
    }
  }
  norm(final_norm_name());
  if (!is_tied)
    all.push_back({head_name(), {vocabulary, model_dim}, std::sqrt(3.0F / static_cast<float>(model_dim))});
  return all;
}

namespace {

/// The number of heads in a width.
Index heads_of(const Checkpoint& checkpoint, const std::string& name, Index head_dim) {
  const Index width = matrix_shape(checkpoint, name)[1];
  if (width % head_dim != 0)
    refuse_parameter(checkpoint, name, fmt::format("a multiple of {} columns, the width of a head", head_dim),
                     fmt::format("{}", width));
  return width / head_dim;
}

}  // namespace

DecoderModel decoder_of(const Checkpoint& checkpoint, Index head_dim) {
  DecoderModel m;
  const Shape table = matrix_shape(checkpoint, embedding_name());
  m.vocabulary = table[0], m.model_dim = table[1];
  m.head_dim = head_dim;
  m.is_tied = !checkpoint.contains(head_name());
  while (checkpoint.contains(block_name(m.num_blocks, "query"))) ++m.num_blocks;
  m.heads = heads_of(checkpoint, block_name(0, "query"), head_dim);
  m.key_heads = heads_of(checkpoint, block_name(0, "key"), head_dim);
  while (checkpoint.contains(block_name(0, fmt::format("expert_{}/gate", m.experts)))) ++m.experts;
  m.hidden_dim = matrix_shape(checkpoint, feed_forward_name(m, 0, 0, "gate"))[1];
  return m;
}

void require_parameters(const Checkpoint& checkpoint, const std::vector<Parameter>& expected,
                        const std::string& kind) {
  std::set<std::string> known;
  for (const Parameter& p : expected) {
    require_parameter(checkpoint, p.name, p.shape);
    known.insert(p.name);
  }
  for (const std::string& name : checkpoint.names())
    if (!known.contains(name))
      refuse_parameter(checkpoint, "parameters", fmt::format("those of a {} and no other", kind),
                       fmt::format("one named {}, which is unknown", printable(name, 60)));
}

namespace {

/// The base of the angles: in rope_parameters (transformers 5), or in the older place.
double rope_base(ForeignConfig& config, double otherwise) {
  config.require("rope_parameters.rope_type", "default");
  config.require("rope_scaling.rope_type", "default");
  config.require("rope_scaling.type", "default");
  config.text("rope_scaling", "");
  const double older = config.number("rope_theta", otherwise, 1.0);
  return config.number("rope_parameters.rope_theta", older, 1.0);
}

struct Family {
  bool is_mixture;
  Index vocabulary, model_dim, hidden_dim, blocks, heads;
  Index key_heads;  // 0: as many as heads
  Index positions;
  double epsilon, rope_base;
  std::optional<Index> window;
};
/// The defaults of transformers' config classes.
constexpr Family llama_family = {false, 32000, 4096, 11008, 32, 32, 0, 2048, 1e-6, 1e4, std::nullopt};
constexpr Family mistral_family = {false, 32000, 4096, 14336, 32, 32, 8, 4096 * 32, 1e-6, 1e4, 4096};
constexpr Family mixtral_family = {true, 32000, 4096, 14336, 32, 32, 8, 4096 * 32, 1e-5, 1e6, std::nullopt};

DecoderModel sizes(ForeignConfig& config, const Family& family) {
  DecoderModel m;
  m.vocabulary = config.count("vocab_size", family.vocabulary);
  m.model_dim = config.count("hidden_size", family.model_dim);
  m.hidden_dim = config.count("intermediate_size", family.hidden_dim);
  m.num_blocks = config.count("num_hidden_layers", family.blocks);
  m.heads = config.count("num_attention_heads", family.heads);
  const bool has_all = family.key_heads == 0 || config.is_null("num_key_value_heads");
  m.key_heads = config.count("num_key_value_heads", has_all ? m.heads : family.key_heads);
  m.head_dim = config.count("head_dim", std::max<Index>(m.model_dim / m.heads, 1));
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

void require_countable(const ForeignConfig& config, const DecoderModel& m) {
  const double blocks = 1.0 * m.num_blocks, experts = std::max(1.0 * m.experts, 1.0);
  const double attention = (2.0 * m.heads + 2.0 * m.key_heads) * m.head_dim;
  const double feed_forward = experts * (3.0 * m.hidden_dim + 1);
  config.require_countable(blocks * (4 + 3 * experts),
                           m.model_dim * (blocks * (attention + feed_forward) + 2.0 * m.vocabulary));
}

void require_same_network(ForeignConfig& config, const DecoderModel& m) {
  config.require("hidden_act", "silu");
  config.require("attention_bias", "false");
  config.require("mlp_bias", "false");
  config.require("pretraining_tp", "1");
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

}  // namespace

DecoderModel mistral_model(const ForeignModel& model) {
  ForeignConfig config(model);
  const std::string family = config.require_family({"llama", "mistral", "mixtral"});
  DecoderModel m = sizes(config, family == "mixtral"   ? mixtral_family
                                 : family == "mistral" ? mistral_family
                                                       : llama_family);
  require_countable(config, m);
  m.is_tied = has_tied_head(model, "model.embed_tokens.weight", config.truth("tie_word_embeddings", false));
  require_same_network(config, m);
  m.how = Arithmetic::real(m.head_dim);
  // Older files have the frequencies of the rotary positions, which follow from config.json.
  if (model.parameters)
    require_tensors(model, m.parameters(), mistral_names(m),
                    [](const std::string& name) { return name.ends_with("rotary_emb.inv_freq"); });
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
