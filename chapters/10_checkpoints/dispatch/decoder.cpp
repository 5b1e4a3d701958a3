#include <cctype>

#include "families.hpp"

namespace shard::dispatch {

namespace {

Module feed_forward(const DecoderModel& m, const std::string& family) {
  const Module activation{"act_fn", family == "Gemma" ? "GELUTanh" : "SiLUActivation"};
  if (!m.is_mixture())
    return {"mlp",
            family + "MLP",
            {},
            {linear("gate_proj", m.hidden_dim, m.model_dim), linear("up_proj", m.hidden_dim, m.model_dim),
             linear("down_proj", m.model_dim, m.hidden_dim), activation}};
  const Index matrix = m.experts * m.model_dim * m.hidden_dim;
  return {
      "mlp",
      family + "SparseMoeBlock",
      {},
      {{"gate", family + "TopKRouter", {{"weight", m.experts * m.model_dim}}},
       {"experts", family + "Experts", {{"gate_up_proj", 2 * matrix}, {"down_proj", matrix}}, {activation}}}};
}

Module block(const DecoderModel& m, const std::string& family, Index number) {
  return {std::to_string(number),
          family + "DecoderLayer",
          {},
          {{"self_attn",
            family + "Attention",
            {},
            {linear("q_proj", m.query_width(), m.model_dim, m.has_bias),
             linear("k_proj", m.key_width(), m.model_dim, m.has_bias),
             linear("v_proj", m.key_width(), m.model_dim, m.has_bias),
             linear("o_proj", m.model_dim, m.query_width())}},
           feed_forward(m, family),
           vector("input_layernorm", family + "RMSNorm", m.model_dim),
           vector("post_attention_layernorm", family + "RMSNorm", m.model_dim)}};
}

/// The steps of a block, in the order of execution. An empty name is the block itself.
const std::vector<Step> attention_flow = {{"input_layernorm", {"hidden"}, {"normed"}},
                                          {"self_attn.q_proj", {"normed"}, {"query"}},
                                          {"self_attn.k_proj", {"normed"}, {"key"}},
                                          {"self_attn.v_proj", {"normed"}, {"value"}},
                                          {"self_attn", {"query", "key", "value", "angles"}, {"attended"}},
                                          {"self_attn.o_proj", {"attended"}, {"branch"}},
                                          {"", {"hidden", "branch"}, {"hidden"}},
                                          {"post_attention_layernorm", {"hidden"}, {"normed"}}};
const std::vector<Step> plain_flow = {{"mlp.gate_proj", {"normed"}, {"gate"}},
                                      {"mlp.act_fn", {"gate"}, {"gate"}},
                                      {"mlp.up_proj", {"normed"}, {"up"}},
                                      {"mlp", {"gate", "up"}, {"product"}},
                                      {"mlp.down_proj", {"product"}, {"branch"}}};
const std::vector<Step> mixture_flow = {{"mlp.gate", {"normed"}, {"routes"}},
                                        {"mlp.experts", {"normed", "routes"}, {"branch"}}};
const std::vector<Step> residual_flow = {{"", {"hidden", "branch"}, {"hidden"}}};

std::vector<Step> flow_of(const DecoderModel& m) {
  std::vector<Step> flow = {{"model.embed_tokens", {"tokens"}, {"hidden"}},
                            {"model.rotary_emb", {"positions"}, {"angles"}}};
  for (Index b = 0; b < m.num_blocks; ++b)
    for (const std::vector<Step>& part :
         {attention_flow, m.is_mixture() ? mixture_flow : plain_flow, residual_flow})
      append(flow, fmt::format("model.layers.{}", b), part);
  flow.push_back({"model.norm", {"hidden"}, {"hidden"}});
  flow.push_back({"lm_head", {"hidden"}, {"logits"}});
  return flow;
}

}  // namespace

Network decoder_network(const DecoderModel& m, const std::string& of_family) {
  const std::string name = m.is_mixture() ? "mixtral" : of_family;
  const std::string family = static_cast<char>(std::toupper(name[0])) + name.substr(1);
  Module layers{"layers", "ModuleList"};
  for (Index b = 0; b < m.num_blocks; ++b) layers.children.push_back(block(m, family, b));
  const ModuleTensor frequencies{"inv_freq", m.head_dim / 2, "F32", true};
  ModuleTensor original = frequencies;
  original.name = "original_inv_freq";
  Module table = embedding("embed_tokens", m.vocabulary, m.model_dim);
  if (name == "gemma")
    table.class_name = "GemmaTextScaledWordEmbedding", table.tensors.push_back({"embed_scale", 1, "", true});
  Module model{"model",
               family + "Model",
               {},
               {std::move(table),
                std::move(layers),
                vector("norm", family + "RMSNorm", m.model_dim),
                {"rotary_emb", family + "RotaryEmbedding", {frequencies, original}}}};
  Network network{
      name + ", " + m.describe(),
      {"", family + "ForCausalLM", {}, {std::move(model), linear("lm_head", m.vocabulary, m.model_dim)}},
      {},
      flow_of(m)};
  if (m.is_tied) network.tied = {{"lm_head.weight", "model.embed_tokens.weight"}};
  return network;
}

}  // namespace shard::dispatch
