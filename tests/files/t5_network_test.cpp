// Networks of the family t5, as config.json and the tensors' names describe them.

#include "engine/weights/checkpoint.hpp"
#include "engine/workloads/decoder/mistral.hpp"
#include "engine/workloads/t5/model.hpp"
#include "tests/files/safetensors_files.hpp"

using namespace shard;
using namespace shard::testing;

namespace {

using Config = std::map<std::string, std::string>;

/// A folder with this configuration and all tensors of a network with these sizes, and optionally another
/// one. All elements are 0, except for the head's.
ForeignModel a_t5(const Config& changes = {}, T5Model m = {}, const std::string& another = "",
                  float head = 1) {
  m.vocabulary = 7, m.model_dim = 4, m.heads = 2, m.head_dim = 3, m.hidden_dim = 5;
  m.encoder_blocks = 2, m.decoder_blocks = 1, m.buckets = 8;
  Config config = {{"model_type", "t5"},
                   {"vocab_size", "7"},
                   {"d_model", "4"},
                   {"d_kv", "3"},
                   {"d_ff", "5"},
                   {"num_layers", "2"},
                   {"num_decoder_layers", "1"},
                   {"num_heads", "2"},
                   {"relative_attention_num_buckets", "8"},
                   {"relative_attention_max_distance", "12"},
                   {"dropout_rate", "0.1"}};
  for (const auto& [name, value] : changes) {
    config[name] = value;
    if (value == "absent") config.erase(name);
  }
  std::map<std::string, HostTensor> tensors;
  const ForeignNames names = t5_names(m);
  if (!another.empty()) tensors[another] = {{1}, {1}};
  for (const Parameter& p : m.parameters()) {
    const ForeignName& stored = names.at(p.name);
    HostTensor& t = tensors[stored.name];
    t.shape = stored.is_transposed ? Shape{p.shape[1], p.shape[0]} : p.shape;
    t.values.assign(static_cast<std::size_t>(num_elements(t.shape)), p.name == head_name() ? head : 0);
  }
  return {"tiny", config, host_checkpoint(std::move(tensors), "tiny")};
}

void check_refused(const Config& changes, const std::string& reason, const T5Model& of = {}) {
  CAPTURE(reason);
  check_error([&] { t5_model(a_t5(changes, of)); }, Code::file, "tiny", reason);
}

}  // namespace

TEST_CASE("t5: sizes and hyper-parameters are those of config.json") {
  const T5Model m = t5_model(a_t5({{"layer_norm_epsilon", "0.25"}}));
  CHECK(m.describe() == "2 + 1 blocks of 4, 2 heads of 3, hidden 5, 7 tokens");
  CHECK(m.buckets == 8);
  CHECK(m.max_distance == 12);
  CHECK(m.epsilon == 0.25F);
  CHECK(m.hidden == Hidden::relu);
  CHECK(m.how.score_scale == 1);
  CHECK(t5_model(a_t5()).epsilon == 1e-6F);
}

TEST_CASE("t5: the head is the files' own if they have one; whether logits are scaled, config.json says") {
  CHECK(t5_model(a_t5()).is_tied);
  CHECK(t5_model(a_t5()).how.logit_scale == 0.5F);
  T5Model own;
  own.is_tied = false;
  const T5Model m = t5_model(a_t5({{"tie_word_embeddings", "false"}}, own));
  CHECK_FALSE(m.is_tied);
  CHECK(m.how.logit_scale == 1);
  CHECK(t5_names(m).at(head_name()).name == "lm_head.weight");
  // transformers 5 always writes that a network is tied, and has an extra option for scaled outputs.
  const Config newer = {{"tie_word_embeddings", "true"}, {"scale_decoder_outputs", "false"}};
  CHECK(t5_model(a_t5(newer, own)).how.logit_scale == 1);
  CHECK_FALSE(t5_model(a_t5(newer, own)).is_tied);
  for (const char* says : {"true", "false"})  // a head that is equal to the embedding is tied
    CHECK(t5_model(a_t5({{"tie_word_embeddings", says}}, own, "", 0)).is_tied);
}

TEST_CASE("t5: parameters have their names, and matrices are turned") {
  T5Model gated;
  gated.hidden = Hidden::geglu;
  const T5Model m = t5_model(a_t5({{"feed_forward_proj", "gated-gelu"}}, gated));
  const ForeignNames names = t5_names(m);
  auto check = [&](const std::string& ours, const std::string& theirs, bool is_transposed) {
    CHECK(names.at(ours).name == theirs);
    CHECK(names.at(ours).is_transposed == is_transposed);
  };
  check("encoder/block_1/self_query", "encoder.block.1.layer.0.SelfAttention.q.weight", true);
  check("decoder/block_0/cross_output", "decoder.block.0.layer.1.EncDecAttention.o.weight", true);
  check("decoder/block_0/gate", "decoder.block.0.layer.2.DenseReluDense.wi_0.weight", true);
  check("encoder/block_0/up", "encoder.block.0.layer.1.DenseReluDense.wi_1.weight", true);
  check("decoder/position_bias", "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        false);
  check("decoder/block_0/cross_norm", "decoder.block.0.layer.1.layer_norm.weight", false);
}

TEST_CASE("t5: what a file does not say is what the family's config class has") {
  CHECK(t5_model(a_t5({{"relative_attention_max_distance", "absent"}})).max_distance == 128);
  // With other sizes, the tensors do not fit.
  const std::string wider = ", which config.json says, given ";
  check_refused({{"relative_attention_num_buckets", "absent"}, {"relative_attention_max_distance", "17"}},
                "relative_attention_bias.weight: expected (32, 2)" + wider + "(8, 2)");
  check_refused({{"vocab_size", "absent"}}, "shared.weight: expected (32128, 4)" + wider + "(7, 4)");
  check_refused({{"d_model", "absent"}}, "shared.weight: expected (7, 512)" + wider + "(7, 4)");
  check_refused({{"d_kv", "absent"}}, "SelfAttention.q.weight: expected (128, 4)" + wider + "(6, 4)");
  check_refused({{"d_ff", "absent"}}, "DenseReluDense.wi.weight: expected (2048, 4)" + wider + "(5, 4)");
  check_refused({{"num_heads", "absent"}}, "expected (8, 8)" + wider + "(8, 2)");
  check_refused({{"num_heads", "null"}}, "num_heads: expected a number of 1 or more, given null");
  check_refused({{"num_layers", "absent"}}, "expected a parameter encoder.block.2.");
  check_refused({{"feed_forward_proj", "gated-gelu"}}, "wi_0.weight, given none of that name");
  check_refused({{"num_decoder_layers", "absent"}}, "expected a parameter decoder.block.1.");  // as encoder's
}

TEST_CASE("t5: a network of a size that nobody has is refused before its parameters are listed") {
  const std::string size = "config.json: size of the network: expected at most 1048576 matrices and 1e+15 ";
  check_refused({{"d_ff", "400000000000000"}}, size);
  check_refused({{"d_model", "9223372036854775807"}}, size);
  check_refused({{"num_layers", "50000"}, {"num_decoder_layers", "50000"}}, size);
}

TEST_CASE("t5: what changes only training or generation is ignored") {
  for (const char* name : {"dropout_rate", "classifier_dropout", "initializer_factor",
                           "decoder_start_token_id", "n_positions", "output_past", "use_cache"})
    CHECK(t5_model(a_t5({{name, "3"}})).buckets == 8);
  CHECK(t5_model(a_t5({{"task_specific_params.translation.num_beams", "4"}})).buckets == 8);
}

TEST_CASE("t5: what would change results is refused") {
  check_refused({{"feed_forward_proj", "gated-silu"}},
                "feed_forward_proj: expected relu or gated-gelu, given gated-silu");
  check_refused({{"dense_act_fn", "gelu"}}, "dense_act_fn: expected relu, given gelu");
  check_refused({{"is_gated_act", "true"}}, "is_gated_act: expected false, given true");
  T5Model gated;
  gated.hidden = Hidden::geglu;
  const Config is_gated = {{"feed_forward_proj", "gated-gelu"}};
  auto and_also = [&](const std::string& name, const std::string& value) {
    Config config = is_gated;
    config[name] = value;
    return config;
  };
  check_refused(and_also("dense_act_fn", "gelu"), "dense_act_fn: expected gelu_new, given gelu", gated);
  check_refused(and_also("is_gated_act", "false"), "is_gated_act: expected true, given false", gated);
  check_refused({{"relative_attention_num_buckets", "3"}},
                "relative_attention_num_buckets: expected a number of 4 or more, given 3");
  check_refused({{"relative_attention_max_distance", "4"}},
                "relative_attention_max_distance: expected a number of 5 or more, given 4");
  check_refused({{"layer_norm_epsilon", "-1"}},
                "layer_norm_epsilon: expected a number of 0 or more, given -1");
  check_refused({{"is_encoder_decoder", "false"}}, "is_encoder_decoder: expected true, given false");
  check_refused({{"is_decoder", "true"}}, "is_decoder: expected false, given true");
  check_refused({{"quantization_config", "object"}}, "quantization_config: expected none, given object");
  check_refused({{"something_new", "1"}}, "something_new: expected no hyper-parameter");
}

TEST_CASE("t5: what says whether logits are scaled is true or false") {
  check_refused({{"tie_word_embeddings", "1"}}, "tie_word_embeddings: expected true or false, given 1");
  check_refused({{"scale_decoder_outputs", "yes"}},
                "scale_decoder_outputs: expected true or false, given yes");
  CHECK(t5_model(a_t5({{"scale_decoder_outputs", "false"}})).how.logit_scale == 1);
  CHECK(
      t5_model(a_t5({{"tie_word_embeddings", "false"}, {"scale_decoder_outputs", "true"}})).how.logit_scale ==
      0.5F);
}

TEST_CASE("t5: tensors that a T5 does not have are refused") {
  check_error([] { t5_model(a_t5({}, {}, "input_patch_embedding.weight")); }, Code::file, "tiny",
              "input_patch_embedding.weight: expected the parameters of a t5 alone, given another one");
}

TEST_CASE("t5: a gate of another activation has the same sizes, and other results") {
  const Config silu = {
      {"feed_forward_proj", "gated-silu"}, {"dense_act_fn", "silu"}, {"is_gated_act", "true"}};
  check_refused(silu, "feed_forward_proj: expected relu or gated-gelu, given gated-silu");
  CHECK(t5_model({"tiny", a_t5(silu).config, nullptr}, Reading::sizes).has_gate());
  const ForeignModel gelu = {"tiny", a_t5({{"feed_forward_proj", "gelu"}}).config, nullptr};  // keeps more
  check_error([&] { t5_model(gelu, Reading::sizes); }, Code::file, "tiny",
              "feed_forward_proj: expected relu or");
  check_refused({{"hidden_size", "5"}}, "hidden_size: expected 4, given 5");
}

TEST_CASE("t5: the embedding may be stored under any of its names, and tables that differ are refused") {
  const std::string shared = "shared.weight", encoder = "encoder.embed_tokens.weight";
  const std::string decoder = "decoder.embed_tokens.weight", head = "lm_head.weight";
  auto a_t5_with = [&](const std::map<std::string, float>& tables) {
    std::map<std::string, HostTensor> tensors;
    const ForeignModel model = a_t5({});
    for (const std::string& name : model.parameters->names())
      if (name != shared)
        tensors[name] = {model.parameters->shape(name),
                         model.parameters->read(name, all_of(model.parameters->shape(name)))};
    for (const auto& [name, last] : tables) {
      tensors[name] = {{7, 4}, std::vector<float>(28, 1)};
      tensors[name].values.back() = last;
    }
    return ForeignModel{"tiny", model.config, host_checkpoint(std::move(tensors), "tiny")};
  };
  auto stored_as = [&](const std::map<std::string, float>& tables) {
    const ForeignModel model = a_t5_with(tables);
    const T5Model m = t5_model(model);
    CHECK(m.is_tied);
    const std::string table = t5_table(model, m);
    CHECK(t5_names(m, table).at(embedding_name()).name == table);
    return table;
  };
  for (const std::string& name : {shared, encoder, decoder, head}) CHECK(stored_as({{name, 2}}) == name);
  CHECK(stored_as({{shared, 2}, {encoder, 2}, {decoder, 2}, {head, 2}}) == shared);
  CHECK(stored_as({{encoder, 2}, {decoder, 2}}) == encoder);
  CHECK_FALSE(t5_model(a_t5_with({{decoder, 2}, {head, 3}})).is_tied);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  auto refused = [&](const std::map<std::string, float>& tables, const std::string& reason) {
    check_error([&] { t5_model(a_t5_with(tables)); }, Code::file, "tiny", reason);
  };
  for (const float other : {3.0F, nan})
    refused({{shared, 2}, {encoder, 2}, {decoder, other}},
            decoder +
                ": expected the values of shared.weight, as they are one table, given others, the first in "
                "row 6");
  refused({{encoder, 2}, {decoder, 3}}, decoder + ": expected the values of encoder.embed_tokens.weight");
  refused({}, "expected a parameter shared.weight, given none of that name; there are ");
  check_error([] { t5_model(a_t5({}, {}, "encoder.embed_tokens.weight")); }, Code::file, "tiny",
              "expected a matrix with the shape (7, 4) of shared.weight, as they are one table, given (1,)");
}

TEST_CASE("t5: a tokenizer's settings are ignored; the start token is read") {
  CHECK(t5_model(a_t5({{"chronos_config.tokenizer_class", "MeanScaleUniformBins"}})).start_token == 0);
  CHECK(t5_model(a_t5({{"decoder_start_token_id", "6"}})).start_token == 6);
  check_refused({{"decoder_start_token_id", "7"}},
                "decoder_start_token_id: expected a token below 7, given 7");
}

TEST_CASE("t5: a network of another family is refused, and the variants that read it are named") {
  check_refused({{"model_type", "mistral"}},
                "model_type: expected t5, given mistral, which the variants without t5- read");
  check_error(
      [] { mistral_model(a_t5()); }, Code::file, "tiny",
      "model_type: expected llama or mistral or mixtral or qwen2, given t5, which the variants t5-... read");
}
