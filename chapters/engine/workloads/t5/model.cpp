#include "engine/workloads/t5/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/weights/foreign_config.hpp"
#include "engine/workloads/decoder/foreign_tensors.hpp"
#include "engine/workloads/decoder/model.hpp"
#include "engine/workloads/mlp/model.hpp"

namespace shard {

std::string t5_name(Side side, const std::string& parameter) {
  return fmt::format("{}/{}", side == Side::encoder ? "encoder" : "decoder", parameter);
}

std::string t5_name(Side side, Index block, const std::string& parameter) {
  return t5_name(side, fmt::format("block_{}/{}", block, parameter));
}

std::string T5Model::describe() const {
  return fmt::format("{} + {} blocks of {}, {} heads of {}, hidden {}, {} tokens", encoder_blocks,
                     decoder_blocks, model_dim, heads, head_dim, hidden_dim, vocabulary);
}

/// Initial values have the usual bounds. Scores are not scaled, so the queries' weights are small.
std::vector<Parameter> T5Model::parameters() const {
  std::vector<Parameter> all;
  const auto D = static_cast<double>(model_dim);
  auto matrix = [&](const std::string& name, Index rows, Index columns, double divisor) {
    all.push_back(
        {name, {rows, columns}, static_cast<float>(std::sqrt(3 / divisor))});  // mean square 1 / divisor
  };
  auto weights = [&](const std::string& name, Index in, Index out) {
    matrix(name, in, out, static_cast<double>(in));
  };
  auto norm = [&](const std::string& name) { all.push_back({name, {model_dim}, 0, 1}); };
  auto attention = [&](const std::string& before) {
    norm(before + "norm");
    matrix(before + "query", model_dim, width(), static_cast<double>(model_dim * head_dim));
    weights(before + "key", model_dim, width());
    weights(before + "value", model_dim, width());
    weights(before + "output", width(), model_dim);
  };
  matrix(embedding_name(), vocabulary, model_dim, 1);
  for (Side side : {Side::encoder, Side::decoder}) {
    matrix(t5_name(side, "position_bias"), buckets, heads, D);
    for (Index b = 0; b < blocks(side); ++b) {
      attention(t5_name(side, b, "self_"));
      if (side == Side::decoder) attention(t5_name(side, b, "cross_"));
      norm(t5_name(side, b, "feed_forward_norm"));
      if (has_gate()) weights(t5_name(side, b, "gate"), model_dim, hidden_dim);
      weights(t5_name(side, b, "up"), model_dim, hidden_dim);
      weights(t5_name(side, b, "down"), hidden_dim, model_dim);
    }
    norm(t5_name(side, "final_norm"));
  }
  if (!is_tied) matrix(head_name(), vocabulary, model_dim, D);
  return all;
}

T5Model t5_of(const Checkpoint& checkpoint, Index head_dim) {
  T5Model m;
  const Shape table = matrix_shape(checkpoint, embedding_name());
  m.vocabulary = table[0], m.model_dim = table[1];
  m.head_dim = head_dim;
  m.is_tied = !checkpoint.contains(head_name());
  auto count = [&](Side side) {
    Index blocks = 0;
    while (checkpoint.contains(t5_name(side, blocks, "self_query"))) ++blocks;
    return blocks;
  };
  m.encoder_blocks = count(Side::encoder), m.decoder_blocks = count(Side::decoder);
  const Shape bias = matrix_shape(checkpoint, t5_name(Side::encoder, "position_bias"));
  m.buckets = bias[0], m.heads = bias[1];
  m.hidden_dim = matrix_shape(checkpoint, t5_name(Side::encoder, 0, "up"))[1];
  if (checkpoint.contains(t5_name(Side::encoder, 0, "gate"))) m.hidden = Hidden::geglu;
  return m;
}

namespace {

/// The defaults are those of transformers' config class.
T5Model sizes(ForeignConfig& config) {
  T5Model m;
  m.vocabulary = config.count("vocab_size", 32128);
  m.model_dim = config.count("d_model", 512);
  m.head_dim = config.count("d_kv", 64);
  m.hidden_dim = config.count("d_ff", 2048);
  m.encoder_blocks = config.count("num_layers", 6);
  m.decoder_blocks = config.count_or_null("num_decoder_layers", m.encoder_blocks);
  m.heads = config.count("num_heads", 8);
  m.buckets = config.number<Index>("relative_attention_num_buckets", 32, 4);
  m.max_distance = config.number<Index>("relative_attention_max_distance", 128, m.buckets / 2 + 1);
  config.require_same("hidden_size", m.model_dim);
  config.require_same("head_dim", m.head_dim);
  config.require_same("num_hidden_layers", m.encoder_blocks);
  config.require_same("num_attention_heads", m.heads);
  m.epsilon = static_cast<float>(config.number("layer_norm_epsilon", 1e-6, 0.0, 1e30));
  m.start_token = config.number<Index>("decoder_start_token_id", 0, 0);
  if (m.start_token >= m.vocabulary)
    config.refuse_value("decoder_start_token_id", fmt::format("a token below {}", m.vocabulary),
                        fmt::to_string(*m.start_token));
  return m;
}

void require_countable(const ForeignConfig& config, const T5Model& m) {
  const double blocks = 1.0 * m.encoder_blocks + 1.0 * m.decoder_blocks;  // each with at most 11 matrices
  const double of_block = 8.0 * m.heads * m.head_dim + 3.0 * m.hidden_dim;
  config.require_countable(
      11 * blocks, m.model_dim * (blocks * of_block + 2.0 * m.vocabulary) + 2.0 * m.buckets * m.heads);
}

/// "gated-gelu" means GELU with tanh: this name is older than those of the other forms. Another gate has the same
/// sizes.
Hidden hidden_of(ForeignConfig& config, Reading reading) {
  const std::string given = config.text("feed_forward_proj", "relu");
  const bool has_gate = given == "gated-gelu" || (reading == Reading::sizes && given.starts_with("gated-"));
  if (given != "relu" && !has_gate) config.refuse_value("feed_forward_proj", "relu or gated-gelu", given);
  config.require("is_gated_act", has_gate ? "true" : "false");
  if (has_gate)
    config.require_for_values("dense_act_fn", "gelu_new");
  else
    config.require("dense_act_fn", "relu");
  return has_gate ? Hidden::geglu : Hidden::relu;
}

/// Refuses hyper-parameters that would change results. Those of training or generation are read and ignored.
void require_same_network(ForeignConfig& config) {
  config.require("quantization_config", "none");
  config.require("is_encoder_decoder", "true");
  config.require("is_decoder", "false");
  for (const char* ignored :
       {"dropout_rate", "classifier_dropout", "initializer_factor", "n_positions", "output_past"})
    config.text(ignored, "");
  config.require_known();
}

/// The names of the one embedding that both stacks read.
const std::vector<std::string> tables = {"shared.weight", "encoder.embed_tokens.weight",
                                         "decoder.embed_tokens.weight"};

/// Files may have copies of the embedding. Older ones have a bias of cross attention that is not used.
bool is_ignored(const std::string& name) {
  return std::ranges::find(tables, name) != tables.end() ||
         name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
}

}  // namespace

T5Model t5_model(const ForeignModel& model, Reading reading) {
  ForeignConfig config(model, reading);
  config.require_family(true);
  T5Model m = sizes(config);
  require_countable(config, m);
  m.hidden = hidden_of(config, reading);
  const bool says_tied = config.truth("tie_word_embeddings", true);
  require_one_table(model, tables);
  // transformers 5 ties a T5's head whatever config.json says. Without files, config.json counts.
  m.is_tied = has_tied_head(model, tables, says_tied || model.parameters);
  if (config.truth("scale_decoder_outputs", says_tied))
    m.how.logit_scale = 1 / std::sqrt(static_cast<float>(m.model_dim));
  require_same_network(config);
  if (model.parameters) require_tensors(model, m.parameters(), t5_names(m, t5_table(model, m)), is_ignored);
  return m;
}

std::string t5_table(const ForeignModel& model, const T5Model& network) {
  std::vector<std::string> names = tables;
  if (network.is_tied) names.push_back("lm_head.weight");
  return stored_table(model, names);
}

ForeignNames t5_names(const T5Model& m, const std::string& table) {
  ForeignNames names = {{embedding_name(), {table}}};
  if (!m.is_tied) names[head_name()] = {"lm_head.weight"};
  for (Side side : {Side::encoder, Side::decoder}) {
    const std::string stack = t5_name(side, "").substr(0, 7);
    names[t5_name(side, "final_norm")] = {stack + ".final_layer_norm.weight"};
    names[t5_name(side, "position_bias")] = {stack +
                                             ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"};
    for (Index b = 0; b < m.blocks(side); ++b) {
      auto add = [&](const std::string& ours, int layer, const std::string& theirs, bool is_matrix) {
        names[t5_name(side, b, ours)] = {
            fmt::format("{}.block.{}.layer.{}.{}.weight", stack, b, layer, theirs), is_matrix};
      };
      auto attention = [&](const std::string& ours, int layer, const std::string& theirs) {
        constexpr std::array<std::array<const char*, 2>, 4> matrices = {
            {{"query", "q"}, {"key", "k"}, {"value", "v"}, {"output", "o"}}};
        add(ours + "norm", layer, "layer_norm", false);
        for (const auto& [of_ours, letter] : matrices)
          add(ours + of_ours, layer, theirs + "." + letter, true);
      };
      attention("self_", 0, "SelfAttention");
      if (side == Side::decoder) attention("cross_", 1, "EncDecAttention");
      const int last = side == Side::decoder ? 2 : 1;
      add("feed_forward_norm", last, "layer_norm", false);
      if (m.has_gate()) add("gate", last, "DenseReluDense.wi_0", true);
      add("up", last, m.has_gate() ? "DenseReluDense.wi_1" : "DenseReluDense.wi", true);
      add("down", last, "DenseReluDense.wo", true);
    }
  }
  return names;
}

}  // namespace shard
