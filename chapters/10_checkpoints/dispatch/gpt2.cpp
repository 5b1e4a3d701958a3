#include <fmt/format.h>

#include <algorithm>

#include "engine/weights/foreign_config.hpp"
#include "families.hpp"

namespace shard::dispatch {

namespace {

struct Gpt2Sizes {
  Index vocabulary, positions, model_dim, hidden_dim, blocks, heads;
};

/// The defaults are those of transformers' config class.
Gpt2Sizes sizes_in(const ForeignModel& model) {
  ForeignConfig config(model, Reading::sizes);
  Gpt2Sizes m{config.count("vocab_size", 50257), config.count("n_positions", 1024),
              config.count("n_embd", 768),       0,
              config.count("n_layer", 12),       config.count("n_head", 12)};
  m.hidden_dim = config.count_or_null("n_inner", 4 * std::min(m.model_dim, Index{1} << 40));
  config.require_same("hidden_size", m.model_dim);
  config.require_same("max_position_embeddings", m.positions);
  config.require_same("num_attention_heads", m.heads);
  config.require_same("num_hidden_layers", m.blocks);
  for (const char* no_size :
       {"model_type", "activation_function", "layer_norm_epsilon", "n_ctx", "scale_attn_weights",
        "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"})
    config.text(no_size, "");
  config.require("tie_word_embeddings", "true");
  config.require("add_cross_attention", "false");
  config.require("quantization_config", "none");
  if (m.model_dim % m.heads != 0)
    config.refuse_value("n_head", fmt::format("a number that divides the width {}", m.model_dim),
                        std::to_string(m.heads));
  config.require_countable(13.0 * m.blocks,
                           1.0 * m.model_dim * (1.0 * m.vocabulary + m.positions) +
                               1.0 * m.blocks * m.model_dim * (4.0 * m.model_dim + 2.0 * m.hidden_dim));
  config.require_known();
  return m;
}

Module with_bias(Module module, Index outputs) {
  module.tensors.push_back({"bias", outputs});
  return module;
}
Module norm(const std::string& name, Index width) {
  return with_bias(vector(name, "LayerNorm", width), width);
}
/// Weights are (in, out).
Module conv(const std::string& name, Index in, Index out) {
  return with_bias({name, "Conv1D", {{"weight", in * out}}}, out);
}
Module dropout_of(const std::string& name) {
  return {name, "Dropout"};
}

Module block(const Gpt2Sizes& m, Index number) {
  const Index D = m.model_dim, F = m.hidden_dim;
  return {
      std::to_string(number),
      "GPT2Block",
      {},
      {norm("ln_1", D),
       {"attn",
        "GPT2Attention",
        {},
        {conv("c_attn", D, 3 * D), conv("c_proj", D, D), dropout_of("attn_dropout"),
         dropout_of("resid_dropout")}},
       norm("ln_2", D),
       {"mlp",
        "GPT2MLP",
        {},
        {conv("c_fc", D, F), conv("c_proj", F, D), {"act", "NewGELUActivation"}, dropout_of("dropout")}}}};
}

/// The steps of a block, in the order of execution. An empty name is the block itself.
const std::vector<Step> block_flow = {{"ln_1", {"hidden"}, {"normed"}},
                                      {"attn.c_attn", {"normed"}, {"queries, keys and values"}},
                                      {"attn", {"queries, keys and values"}, {"attended"}},
                                      {"attn.c_proj", {"attended"}, {"branch"}},
                                      {"attn.resid_dropout", {"branch"}, {"branch"}},
                                      {"", {"hidden", "branch"}, {"hidden"}},
                                      {"ln_2", {"hidden"}, {"normed"}},
                                      {"mlp.c_fc", {"normed"}, {"product"}},
                                      {"mlp.act", {"product"}, {"product"}},
                                      {"mlp.c_proj", {"product"}, {"branch"}},
                                      {"mlp.dropout", {"branch"}, {"branch"}},
                                      {"", {"hidden", "branch"}, {"hidden"}}};

}  // namespace

Network gpt2_network(const ForeignModel& model) {
  const Gpt2Sizes m = sizes_in(model);
  Module blocks{"h", "ModuleList"};
  std::vector<Step> flow = {{"transformer.wte", {"tokens"}, {"hidden"}},
                            {"transformer.wpe", {"positions"}, {"branch"}},
                            {"transformer", {"hidden", "branch"}, {"hidden"}},
                            {"transformer.drop", {"hidden"}, {"hidden"}}};
  for (Index b = 0; b < m.blocks; ++b) {
    blocks.children.push_back(block(m, b));
    append(flow, fmt::format("transformer.h.{}", b), block_flow);
  }
  flow.push_back({"transformer.ln_f", {"hidden"}, {"hidden"}});
  flow.push_back({"lm_head", {"hidden"}, {"logits"}});
  return {fmt::format("gpt2, {} blocks of {}, {} heads, hidden {}, {} tokens, {} positions", m.blocks,
                      m.model_dim, m.heads, m.hidden_dim, m.vocabulary, m.positions),
          {"",
           "GPT2LMHeadModel",
           {},
           {{"transformer",
             "GPT2Model",
             {},
             {embedding("wte", m.vocabulary, m.model_dim), embedding("wpe", m.positions, m.model_dim),
              dropout_of("drop"), std::move(blocks), norm("ln_f", m.model_dim)}},
            linear("lm_head", m.vocabulary, m.model_dim)}},
          {{"lm_head.weight", "transformer.wte.weight"}},
          std::move(flow)};
}

}  // namespace shard::dispatch
