#include <fmt/format.h>

#include "families.hpp"

namespace shard::dispatch {

namespace {

const Module dropout{"dropout", "Dropout"};

/// A residual block: a norm, an inner module, and the sum.
Module residual(Index number, const std::string& class_name, Module inner, const T5Model& m) {
  return {std::to_string(number),
          class_name,
          {},
          {std::move(inner), vector("layer_norm", "T5LayerNorm", m.model_dim), dropout}};
}

Module attention(const std::string& name, bool has_bias, const T5Model& m) {
  Module module{name,
                "T5Attention",
                {},
                {linear("q", m.width(), m.model_dim), linear("k", m.width(), m.model_dim),
                 linear("v", m.width(), m.model_dim), linear("o", m.model_dim, m.width())}};
  if (has_bias) module.children.push_back(embedding("relative_attention_bias", m.buckets, m.heads));
  return module;
}

Module feed_forward(const T5Model& m) {
  Module module{"DenseReluDense", m.has_gate() ? "T5DenseGatedActDense" : "T5DenseActDense"};
  for (const char* name : {"wi_0", "wi_1"})
    if (m.has_gate()) module.children.push_back(linear(name, m.hidden_dim, m.model_dim));
  if (!m.has_gate()) module.children.push_back(linear("wi", m.hidden_dim, m.model_dim));
  module.children.push_back(linear("wo", m.model_dim, m.hidden_dim));
  module.children.push_back(dropout);
  module.children.push_back({"act", m.has_gate() ? "NewGELUActivation" : "ReLU"});
  return module;
}

Module block(const T5Model& m, Side side, Index number) {
  Module layers{"layer", "ModuleList"};
  auto add = [&](const std::string& class_name, Module inner) {
    layers.children.push_back(
        residual(static_cast<Index>(layers.children.size()), class_name, std::move(inner), m));
  };
  add("T5LayerSelfAttention", attention("SelfAttention", number == 0, m));
  if (side == Side::decoder) add("T5LayerCrossAttention", attention("EncDecAttention", false, m));
  add("T5LayerFF", feed_forward(m));
  return {std::to_string(number), "T5Block", {}, {std::move(layers)}};
}

Module stack(const T5Model& m, Side side) {
  Module blocks{"block", "ModuleList"};
  for (Index b = 0; b < m.blocks(side); ++b) blocks.children.push_back(block(m, side, b));
  return {side == Side::encoder ? "encoder" : "decoder",
          "T5Stack",
          {},
          {embedding("embed_tokens", m.vocabulary, m.model_dim), std::move(blocks),
           vector("final_layer_norm", "T5LayerNorm", m.model_dim), dropout}};
}

/// The first block of a stack computes the bias of positions, and the other blocks read it.
std::vector<Step> attention_steps(const std::string& name, const std::string& keys, const std::string& bias,
                                  bool computes_bias) {
  std::vector<Step> flow = {{"layer_norm", {"hidden"}, {"normed"}},
                            {name + ".q", {"normed"}, {"query"}},
                            {name + ".k", {keys}, {"key"}},
                            {name + ".v", {keys}, {"value"}}};
  if (computes_bias)
    flow.push_back({keys == "normed" ? name + ".relative_attention_bias" : name, {}, {bias}});
  flow.push_back({name, {"query", "key", "value", bias}, {"attended"}});
  flow.push_back({name + ".o", {"attended"}, {"branch"}});
  flow.push_back({"dropout", {"branch"}, {"branch"}});
  flow.push_back({"", {"hidden", "branch"}, {"hidden"}});
  return flow;
}

std::vector<Step> feed_forward_flow(bool has_gate) {
  std::vector<Step> flow = {{"layer_norm", {"hidden"}, {"normed"}}};
  if (has_gate)
    append(flow, "DenseReluDense",
           {{"wi_0", {"normed"}, {"gate"}},
            {"act", {"gate"}, {"gate"}},
            {"wi_1", {"normed"}, {"up"}},
            {"", {"gate", "up"}, {"product"}}});
  else
    append(flow, "DenseReluDense", {{"wi", {"normed"}, {"product"}}, {"act", {"product"}, {"product"}}});
  append(flow, "DenseReluDense", {{"dropout", {"product"}, {"product"}}, {"wo", {"product"}, {"branch"}}});
  flow.push_back({"dropout", {"branch"}, {"branch"}});
  flow.push_back({"", {"hidden", "branch"}, {"hidden"}});
  return flow;
}

void append_stack(std::vector<Step>& flow, const T5Model& m, Side side) {
  const std::string stack = side == Side::encoder ? "encoder" : "decoder";
  flow.push_back({stack + ".embed_tokens", {side == Side::encoder ? "source" : "target"}, {"hidden"}});
  flow.push_back({stack + ".dropout", {"hidden"}, {"hidden"}});
  for (Index b = 0; b < m.blocks(side); ++b) {
    int layer = 0;
    auto add = [&](const std::vector<Step>& part) {
      append(flow, fmt::format("{}.block.{}.layer.{}", stack, b, layer++), part);
    };
    add(attention_steps("SelfAttention", "normed", "bias", b == 0));
    if (side == Side::decoder) add(attention_steps("EncDecAttention", "encoded", "cross bias", b == 0));
    add(feed_forward_flow(m.has_gate()));
  }
  flow.push_back({stack + ".final_layer_norm", {"hidden"}, {"hidden"}});
  flow.push_back({stack + ".dropout", {"hidden"}, {side == Side::encoder ? "encoded" : "hidden"}});
}

}  // namespace

Network t5_network(const T5Model& m) {
  Network network{"t5, " + m.describe(),
                  {"",
                   "T5ForConditionalGeneration",
                   {},
                   {embedding("shared", m.vocabulary, m.model_dim), stack(m, Side::encoder),
                    stack(m, Side::decoder), linear("lm_head", m.vocabulary, m.model_dim)}},
                  {{"decoder.embed_tokens.weight", "encoder.embed_tokens.weight", "shared.weight"}},
                  {}};
  if (m.is_tied) network.tied[0].insert(network.tied[0].begin() + 2, "lm_head.weight");
  append_stack(network.flow, m, Side::encoder);
  append_stack(network.flow, m, Side::decoder);
  network.flow.push_back({"lm_head", {"hidden"}, {"logits"}});
  return network;
}

}  // namespace shard::dispatch
