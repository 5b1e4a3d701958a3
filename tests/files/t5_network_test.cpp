// Networks of the family t5, as config.json and the tensors' names describe them.

#include "engine/workloads/t5_network.hpp"

#include "engine/host_checkpoint.hpp"
#include "engine/workloads/decoder_model.hpp"
#include "engine/workloads/mistral.hpp"
#include "tests/files/safetensors_files.hpp"

using namespace shard;
using namespace shard::testing;

namespace {

using Config = std::map<std::string, std::string>;

/// A folder of this configuration, with every tensor that a network of these sizes has, and maybe another one.
ForeignModel a_t5(const Config& changes = {}, T5Model m = {}, const std::string& another = "") {
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
  for (const auto& [name, value] : changes) config[name] = value;
  std::map<std::string, HostTensor> tensors;
  const ForeignNames names = t5_names(m);
  if (!another.empty()) tensors[another] = {{1}, {1}};
  for (const Parameter& p : m.parameters()) {
    const ForeignName& stored = names.at(p.name);
    HostTensor& t = tensors[stored.name];
    t.shape = stored.is_transposed ? Shape{p.shape[1], p.shape[0]} : p.shape;
    t.values.resize(static_cast<std::size_t>(num_elements(t.shape)));
  }
  return {"tiny", config, host_checkpoint(std::move(tensors), "tiny")};
}

void check_refused(const Config& changes, const std::string& reason) {
  CAPTURE(reason);
  check_error([&] { t5_model(a_t5(changes)); }, Code::file, "tiny", reason);
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
  // transformers 5 writes that networks are tied, whether they are or not, and says apart what is scaled.
  const Config newer = {{"tie_word_embeddings", "true"}, {"scale_decoder_outputs", "false"}};
  CHECK(t5_model(a_t5(newer, own)).how.logit_scale == 1);
  CHECK_FALSE(t5_model(a_t5(newer, own)).is_tied);
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

TEST_CASE("t5: what would change results is refused") {
  check_refused({{"feed_forward_proj", "gated-silu"}},
                "feed_forward_proj: expected relu or gated-gelu, given gated-silu");
  check_refused({{"dense_act_fn", "gelu"}}, "dense_act_fn: expected relu, given gelu");
  check_refused({{"relative_attention_num_buckets", "3"}},
                "relative_attention_num_buckets: expected a number of 4 or more, given 3");
  check_refused({{"relative_attention_max_distance", "4"}},
                "relative_attention_max_distance: expected a number of 5 or more, given 4");
  check_refused({{"something_new", "1"}}, "something_new: expected no hyper-parameter");
  check_refused({{"d_kv", "2"}}, "which config.json says, given");
}

TEST_CASE("t5: tensors that a T5 does not have are refused; copies of the embedding are not read") {
  check_error([] { t5_model(a_t5({}, {}, "input_patch_embedding.weight")); }, Code::file, "tiny",
              "input_patch_embedding.weight: expected a parameter of a T5, given another one");
  CHECK(t5_model(a_t5({}, {}, "encoder.embed_tokens.weight")).is_tied);
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
  check_error([] { mistral_model(a_t5()); }, Code::file, "tiny",
              "model_type: expected mistral or mixtral, given t5, which the variants t5-... read");
}
