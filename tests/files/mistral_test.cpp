// Networks of the families mistral and mixtral, as config.json and the tensors' names describe them.

#include "engine/workloads/decoder/mistral.hpp"

#include "engine/weights/checkpoint.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "tests/files/safetensors_files.hpp"

using namespace shard;
using namespace shard::testing;

namespace {

using Config = std::map<std::string, std::string>;

Config config_of(const std::string& family, const Config& changes) {
  Config config = {{"model_type", family},
                   {"vocab_size", "7"},
                   {"hidden_size", "8"},
                   {"intermediate_size", "5"},
                   {"num_hidden_layers", "2"},
                   {"num_attention_heads", "4"},
                   {"num_key_value_heads", "2"},
                   {"max_position_embeddings", "32"},
                   {"rms_norm_eps", "1e-05"},
                   {"rope_parameters", "object"},
                   {"rope_parameters.rope_theta", "10000.0"},
                   {"rope_parameters.rope_type", "default"},
                   {"sliding_window", "null"},
                   {"hidden_act", "silu"},
                   {"tie_word_embeddings", "false"},
                   {"attention_dropout", "0.0"}};
  if (family == "mixtral") config["num_local_experts"] = "3", config["num_experts_per_tok"] = "2";
  for (const auto& [name, value] : changes)
    if (value == "absent")
      config.erase(name);
    else
      config[name] = value;
  return config;
}

/// A folder with this configuration and every tensor of its network: element i is i. A tensor of `others` with
/// an empty shape is left out.
ForeignModel a_model(const std::string& family, const Config& changes = {}, const DecoderModel& sizes = {},
                     const std::map<std::string, HostTensor>& others = {}) {
  DecoderModel m = sizes;
  m.vocabulary = 7, m.model_dim = 8, m.heads = 4, m.key_heads = 2, m.hidden_dim = 5, m.num_blocks = 2;
  if (m.head_dim == 0) m.head_dim = 2;
  if (family == "mixtral") m.experts = 3, m.top_k = 2;
  std::map<std::string, HostTensor> tensors;
  const ForeignNames names = mistral_names(m);
  for (const Parameter& p : m.parameters()) {
    const ForeignName& stored = names.at(p.name);
    HostTensor& t = tensors[stored.name];
    t.shape = stored.stored_shape(p.shape);
    for (Index i = 0; i < num_elements(t.shape); ++i) t.values.push_back(static_cast<float>(i));
  }
  for (const auto& [name, tensor] : others)
    if (tensor.shape.empty())
      tensors.erase(name);
    else
      tensors[name] = tensor;
  return {"tiny", config_of(family, changes), host_checkpoint(std::move(tensors), "tiny")};
}

void check_refused(const std::string& family, const Config& changes, const std::string& reason) {
  CAPTURE(reason);
  check_error([&] { mistral_model(a_model(family, changes)); }, Code::file, "tiny", reason);
}

}  // namespace

TEST_CASE("mistral: sizes and hyper-parameters are those of config.json") {
  const DecoderModel m =
      mistral_model(a_model("mistral", {{"sliding_window", "3"}, {"rms_norm_eps", "0.25"}}));
  CHECK(m.describe() == "2 blocks of 8, 4 heads of 2 (2 key-value heads), hidden 5, 7 tokens");
  CHECK(m.window == 3);
  CHECK(m.epsilon == 0.25F);
  CHECK(m.positions == 32);
  CHECK_FALSE(m.is_tied);
  CHECK(m.how.score_scale == 1 / std::sqrt(2.0F));
  CHECK_FALSE(mistral_model(a_model("mistral")).window);
}

TEST_CASE("mistral: the base of positions is read in both spellings") {
  CHECK(mistral_model(a_model("mistral", {{"rope_parameters.rope_theta", "500.0"}})).rope_base == 500);
  const Config older = {{"rope_parameters", "absent"},
                        {"rope_parameters.rope_theta", "absent"},
                        {"rope_parameters.rope_type", "absent"},
                        {"rope_theta", "700.5"},
                        {"rope_scaling", "null"}};
  CHECK(mistral_model(a_model("mistral", older)).rope_base == 700.5);
  check_refused("mistral", {{"rope_parameters.rope_type", "yarn"}},
                "rope_parameters.rope_type: expected default, given yarn");
  check_refused("mistral", {{"rope_scaling", "object"}, {"rope_scaling.type", "linear"}},
                "rope_scaling.type: expected default, given linear");
}

TEST_CASE("mistral: what a file does not say is what the family's config class has") {
  // A window of 4096 is Mistral's default, and null means none. Mixtral has none.
  CHECK(mistral_model(a_model("mistral", {{"sliding_window", "absent"}})).window == 4096);
  CHECK_FALSE(mistral_model(a_model("mixtral", {{"sliding_window", "absent"}})).window);
  CHECK(mistral_model(a_model("mistral", {{"rms_norm_eps", "absent"}})).epsilon == 1e-6F);
  CHECK(mistral_model(a_model("mixtral", {{"rms_norm_eps", "absent"}})).epsilon == 1e-5F);
  CHECK(mistral_model(a_model("mixtral", {{"rope_parameters.rope_theta", "absent"}})).rope_base == 1e6);
  CHECK(mistral_model(a_model("mistral", {{"max_position_embeddings", "absent"}})).positions == 131072);
  CHECK(mistral_model(a_model("llama", {{"num_key_value_heads", "2"}, {"pretraining_tp", "1"}})).key_heads ==
        2);
  CHECK_FALSE(mistral_model(a_model("llama", {{"sliding_window", "absent"}})).window);
  CHECK(mistral_model(a_model("llama", {{"max_position_embeddings", "absent"}})).positions == 2048);
  check_refused("llama", {{"num_key_value_heads", "absent"}},
                "k_proj.weight: expected (8, 8), which config.json says, given (4, 8)");
  check_refused("llama", {{"pretraining_tp", "2"}}, "pretraining_tp: expected 1, given 2");
  check_refused("llama", {{"rope_scaling", "object"}, {"rope_scaling.rope_type", "llama3"}},
                "rope_scaling.rope_type: expected default, given llama3");
  // With null, there are as many key heads as query heads: the tensors here have other shapes.
  check_refused("mistral", {{"num_key_value_heads", "null"}},
                "k_proj.weight: expected (8, 8), which config.json says, given (4, 8)");
}

TEST_CASE("mistral: a network of a size that nobody has is refused before its parameters are listed") {
  const std::string size = "config.json: size of the network: expected at most 1048576 matrices and 1e+15 ";
  check_refused("mistral", {{"vocab_size", "4000000000000000"}}, size);
  check_refused("mistral", {{"hidden_size", "9223372036854775807"}}, size);
  check_refused("mistral", {{"num_attention_heads", "400000000"}, {"head_dim", "400000000"}}, size);
  check_refused("mixtral", {{"num_local_experts", "200000"}}, size);
  check_refused("mistral", {{"num_hidden_layers", "160000"}}, size);
  check_refused("mistral", {{"hidden_size", "2"}}, "head_dim: expected an even number, given 1");
}

TEST_CASE("config.json: what is no number, or too small, is refused; so is an unknown name, printably") {
  for (const std::string given :
       {"0", "-3", "7.5", "12x", "x", " 12", "99999999999999999999", "true", "list"})
    check_refused("mistral", {{"vocab_size", given}},
                  "vocab_size: expected a number of 1 or more, given " + given);
  check_refused("mistral", {{"hidden_size", "null"}},
                "hidden_size: expected a number of 1 or more, given null");
  for (const std::string given : {"nan", "inf", "-0.5", "0.5.5", "1e999"})
    check_refused("mistral", {{"rms_norm_eps", given}},
                  "rms_norm_eps: expected a number of 0 or more, given " + given);
  check_refused("mistral", {{"a\nb", std::string(500, 'x')}}, "a\\x0ab: expected no hyper-parameter");
  const Config harmless = {
      {"hidden_act", "null"}, {"other", "null"}, {"id2label.0", "good"}, {"label2id.good", "0"}};
  CHECK(mistral_model(a_model("mistral", harmless)).vocabulary == 7);
}

TEST_CASE("mistral: a head's width may be of its own, and the head the embedding") {
  DecoderModel wide;
  wide.head_dim = 6, wide.is_tied = true;
  const DecoderModel m =
      mistral_model(a_model("mistral", {{"head_dim", "6"}, {"tie_word_embeddings", "true"}}, wide));
  CHECK(m.query_width() == 24);
  CHECK(m.is_tied);
  CHECK_FALSE(mistral_names(m).contains(head_name()));
}

TEST_CASE("mistral: the head is the embedding where config.json says so and files have none that differs") {
  const HostTensor other{{7, 8}, std::vector<float>(56, 1)};
  for (const char* family : {"mistral", "mixtral"}) {
    auto is_tied = [&](const char* says, const std::map<std::string, HostTensor>& others) {
      return mistral_model(a_model(family, {{"tie_word_embeddings", says}}, {}, others)).is_tied;
    };
    CHECK(is_tied("true", {}));  // equal to the embedding: element i is i in both
    CHECK_FALSE(is_tied("true", {{"lm_head.weight", other}}));
    CHECK_FALSE(is_tied("false", {}));
  }
}

TEST_CASE("mistral: a tied embedding may be stored as the head, and an untied one may not") {
  const std::string table = "model.embed_tokens.weight";
  for (const char* family : {"llama", "mixtral", "qwen2"}) {
    DecoderModel sizes;
    sizes.has_bias = family == std::string("qwen2");
    const ForeignModel model = a_model(family, {{"tie_word_embeddings", "true"}}, sizes, {{table, {}}});
    const DecoderModel m = mistral_model(model);
    CHECK(m.is_tied);
    CHECK(mistral_table(model, m) == "lm_head.weight");
    CHECK(mistral_names(m, mistral_table(model, m)).at(embedding_name()).name == "lm_head.weight");
    check_error(
        [&] {
          mistral_model(a_model(family, {}, sizes, {{table, {}}}));
        },
        Code::file, "tiny", "expected a parameter " + table + ", given none of that name; there are ");
  }
}

TEST_CASE("qwen2: queries, keys and values have biases, which are stored as vectors") {
  DecoderModel with;
  with.has_bias = true;
  const ForeignModel model = a_model("qwen2", {}, with);
  const DecoderModel m = mistral_model(model);
  CHECK(m.describe() == "2 blocks of 8, 4 heads of 2 (2 key-value heads) with biases, hidden 5, 7 tokens");
  ForeignModel again = a_model("qwen2", {}, with);
  const auto ours = renamed(std::move(again.parameters), mistral_names(m), "tiny");
  CHECK(ours->shape("block_1/query_bias") == Shape{1, 8});
  CHECK(ours->shape("block_0/value_bias") == Shape{1, 4});
  CHECK(ours->read("block_0/query_bias", 1, 3, 6) == std::vector<float>{3, 4, 5});
  CHECK(ours->read("block_0/query_bias", 0, 1, 1).empty());
  check_refused("qwen2", {},
                "expected a parameter model.layers.0.self_attn.q_proj.bias, given none of that name");
  check_error([&] { mistral_model(a_model("llama", {}, with)); }, Code::file, "tiny",
              "self_attn.k_proj.bias: expected the parameters of a llama alone, given another one");
}

TEST_CASE("config.json: a window that layers do not share, or that their family has not, is refused") {
  auto window = [](const std::string& family, const Config& changes) {
    return mistral_model({"tiny", config_of(family, changes), nullptr}, Reading::sizes).window;
  };
  const Config qwen = {{"sliding_window", "9"}, {"max_window_layers", "0"}, {"use_sliding_window", "true"}};
  auto qwen_with = [&](Config changes) {
    changes.insert(qwen.begin(), qwen.end());
    return window("qwen2", changes);
  };
  CHECK(qwen_with({}) == 9);
  CHECK_FALSE(qwen_with({{"use_sliding_window", "false"}}));
  CHECK_FALSE(qwen_with({{"max_window_layers", "2"}}));
  CHECK_FALSE(qwen_with({{"layer_types", R"(["full_attention","full_attention"])"}}));
  CHECK(qwen_with({{"layer_types", R"(["sliding_attention","sliding_attention"])"}}) == 9);
  CHECK_FALSE(window("llama", {{"sliding_window", "32"}}));  // all positions
  auto refused = [&](const std::string& family, const Config& changes, const std::string& reason) {
    CAPTURE(reason);
    check_error([&] { window(family, changes); }, Code::file, "tiny", reason);
  };
  refused("llama", {{"sliding_window", "31"}},
          "sliding_window: expected null, as a llama has none, given 31");
  refused("llama", {{"layer_types", R"(["full_attention"])"}},
          "layer_types: expected the same text for each of the 2 layers");
  refused("mistral", {{"layer_types", R"(["full_attention","sliding_attention"])"}},
          "layer_types: expected the same");
  refused("llama", {{"layer_types", R"(["chunked_attention","chunked_attention"])"}},
          "layer_types: expected full_attention, given chunked_attention");
  for (const char* given :
       {"[]", "true", "\"full_attention", R"(["full_attention",1])", "[[\"full_attention\"]]"})
    refused("llama", {{"layer_types", given}}, "layer_types: expected the same text");
  Config some = qwen;
  some["max_window_layers"] = "1";
  refused("qwen2", some, "max_window_layers: expected 0, or the 2 layers or more, given 1");
}

TEST_CASE("config.json: what changes no size is read past for sizes, and refused for values") {
  const std::vector<std::pair<std::string, std::string>> of_values = {{"hidden_act", "gelu"},
                                                                      {"pretraining_tp", "2"},
                                                                      {"rope_scaling.type", "dynamic"},
                                                                      {"rope_scaling.rope_type", "llama3"},
                                                                      {"rope_parameters.rope_type", "yarn"}};
  for (const auto& [name, value] : of_values) {
    CAPTURE(name);
    const Config changes = {{"rope_scaling", "object"}, {"rope_scaling.factor", "8.0"}, {name, value}};
    const ForeignModel model = a_model("llama", changes);
    CHECK(mistral_model(model, Reading::sizes).vocabulary == 7);
    check_refused("llama", changes, name + ": expected ");
  }
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"attention_bias", "true"},
                                                        {"mlp_bias", "true"},
                                                        {"rope_interleaved", "true"},
                                                        {"partial_rotary_factor", "0.5"},
                                                        {"rope_parameters.partial_rotary_factor", "0.5"},
                                                        {"rope_scaling", "8"},
                                                        {"num_experts", "4"},
                                                        {"tie_word_embeddings", "\"true\""}}) {
    CAPTURE(name);
    for (const Reading reading : {Reading::sizes, Reading::values})
      check_error(
          [&] {
            mistral_model(a_model("mixtral", {{name, value}}), reading);
          },
          Code::file, "tiny", name + ": expected ");
  }
}

TEST_CASE("config.json: keys that change nothing are read past, by their names or by their values") {
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"is_llama_config", "true"},
                                                        {"rope_interleaved", "false"},
                                                        {"unsloth_fixed", "true"},
                                                        {"unsloth_version", "2025.9.1"},
                                                        {"gradient_checkpointing", "false"},
                                                        {"torchscript", "false"},
                                                        {"pruned_heads", "{}"},
                                                        {"add_cross_attention", "false"},
                                                        {"tie_encoder_decoder", "false"},
                                                        {"num_beams", "1"},
                                                        {"temperature", "0.7"},
                                                        {"partial_rotary_factor", "1.0"},
                                                        {"_flash_attn", "true"},
                                                        {"image_token_id", "5"},
                                                        {"finetuning_task", "sst2"},
                                                        {"alibi", "false"},
                                                        {"clip_qkv", "null"},
                                                        {"moe_layers", "[]"},
                                                        {"num_nextn_predict_layers", "0"},
                                                        {"text_config", "object"},
                                                        {"text_config.a", "null"},
                                                        {"is_causal", "true"},
                                                        {"auto_map", "{}"},
                                                        {"label", "\"\""}})
    CHECK(mistral_model(a_model("llama", {{name, value}})).vocabulary == 7);
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"alibi", "true"},
                                                        {"is_causal", "false"},
                                                        {"use_rope", "false"},
                                                        {"pruned_heads.0", "[1]"},
                                                        {"text_config.hidden_size", "8"},
                                                        {"clip_qkv", "8.0"},
                                                        {"moe_layers", "[1]"},
                                                        {"norm_type", "layernorm"},
                                                        {"num_nextn_predict_layers", "1"},
                                                        {"auto_map.AutoModelForCausalLM", "a.B"},
                                                        {"label", "x"}})
    check_refused("llama", {{name, value}}, name + ": expected ");
  check_refused("llama", {{"is_causal", "false"}}, "is_causal: expected true, given false");
}

TEST_CASE("mistral: a tensor that nobody reads is refused, but for the frequencies of older files") {
  auto read = [](const std::string& name) {
    mistral_model(a_model("mistral", {}, {}, {{name, {{1}, {1}}}}));
  };
  check_error(
      [&] { read("model.layers.1.self_attn.q_proj.bias"); }, Code::file, "tiny",
      "model.layers.1.self_attn.q_proj.bias: expected the parameters of a mistral alone, given another one");
  read("model.layers.1.self_attn.rotary_emb.inv_freq");
}

TEST_CASE("mixtral: experts have their names, and matrices are turned") {
  const ForeignModel model = a_model("mixtral");
  const DecoderModel m = mistral_model(model);
  CHECK(m.describe() == "2 blocks of 8, 4 heads of 2 (2 key-value heads), 3 experts of 5, 7 tokens");
  CHECK(m.top_k == 2);
  const ForeignNames names = mistral_names(m);
  CHECK(names.at("block_1/expert_2/gate").name == "model.layers.1.block_sparse_moe.experts.2.w1.weight");
  CHECK(names.at("block_1/expert_2/up").name == "model.layers.1.block_sparse_moe.experts.2.w3.weight");
  CHECK(names.at("block_1/expert_2/down").name == "model.layers.1.block_sparse_moe.experts.2.w2.weight");
  CHECK(names.at("block_0/router").name == "model.layers.0.block_sparse_moe.gate.weight");
  CHECK(names.at("block_0/router").is_transposed);
  CHECK_FALSE(names.at("embedding").is_transposed);
  CHECK_FALSE(names.at("head").is_transposed);
}

TEST_CASE("mistral: what would change results is refused, and not ignored") {
  for (const std::string family : {"falcon", "none"})
    check_refused("mistral", {{"model_type", family == "none" ? "absent" : family}},
                  "model_type: expected llama or mistral or mixtral or qwen2 or t5, given " + family);
  check_refused("mistral", {{"model_type", "gemma"}},
                "given gemma, of which costs, owns and map read the sizes");
  check_refused("mistral", {{"model_type", "t5"}},
                "expected llama or mistral or mixtral or qwen2, given t5, which the variants t5-... read");
  check_refused("mistral", {{"hidden_act", "gelu"}}, "hidden_act: expected silu, given gelu");
  check_refused("mistral", {{"attention_bias", "true"}}, "attention_bias: expected false, given true");
  check_refused("mistral", {{"quantization_config", "object"}},
                "quantization_config: expected none, given object");
  check_refused("mistral", {{"logit_softcap", "30.0"}},
                "logit_softcap: expected no hyper-parameter that this program does not know, given 30.0");
  check_refused("mixtral", {{"output_router_logits", "true"}},
                "output_router_logits: expected false, given true");
  check_refused("mistral", {{"num_attention_heads", "5"}},
                "num_key_value_heads: expected a number that divides the 5 heads, given 2");
  check_refused("mistral", {{"head_dim", "3"}}, "head_dim: expected an even number, given 3");
  check_refused("mixtral", {{"num_experts_per_tok", "4"}},
                "num_experts_per_tok: expected at most the 3 experts, given 4");
  check_refused("mistral", {{"tie_word_embeddings", "1"}},
                "tie_word_embeddings: expected true or false, given 1");
  check_refused("mistral", {{"intermediate_size", "6"}},
                "gate_proj.weight: expected (6, 8), which config.json says, given (5, 8)");
  check_refused("mistral", {{"num_hidden_layers", "3"}}, "expected a parameter model.layers.2.");
}
