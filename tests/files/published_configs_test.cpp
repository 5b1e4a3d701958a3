// The config.json files of published networks, with the keys that they have: each is read, and the network has the
// published number of parameters, or it is refused by a sentence that names the key.

#include "10_checkpoints/dispatch/families.hpp"
#include "engine/files/model_folder.hpp"
#include "engine/workloads/decoder/decoder.hpp"
#include "engine/workloads/t5/t5.hpp"
#include "tests/files/safetensors_files.hpp"

using namespace shard;
using namespace shard::testing;

namespace {

/// A network's family, the hyper-parameters that its file says beside the keys below, and the number of its
/// parameters as the hub counts them; or what is wrong.
struct Published {
  std::string name, family, sizes;
  Index parameters = 0;
  std::string refusal = "";
};

/// What the files of Llama, Mistral and Qwen2 have, and change no number of parameters.
const std::string usual =
    R"("architectures": ["LlamaForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
  "eos_token_id": [2, 3], "hidden_act": "silu", "initializer_range": 0.02, "rms_norm_eps": 1e-05,
  "torch_dtype": "bfloat16", "transformers_version": "4.42.3", "use_cache": true, )";
const std::string llama3 = R"("rope_theta": 500000.0, "mlp_bias": false, "pretraining_tp": 1,
  "attention_bias": false, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
  "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "max_position_embeddings": 131072, )";
const std::string t5_keys = R"("architectures": ["T5ForConditionalGeneration"], "decoder_start_token_id": 0,
  "dropout_rate": 0.1, "eos_token_id": 1, "initializer_factor": 1.0, "is_encoder_decoder": true,
  "layer_norm_epsilon": 1e-06, "n_positions": 512, "output_past": true, "pad_token_id": 0,
  "relative_attention_num_buckets": 32, "d_kv": 64, "vocab_size": 32128, "task_specific_params":
  {"summarization": {"early_stopping": true, "length_penalty": 2.0, "max_length": 200, "num_beams": 4}}, )";
const std::string gpt2_keys = R"("activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "n_ctx": 1024, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null,
  "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
  "summary_use_proj": true, "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
  "vocab_size": 50257, )";
const std::string qwen =
    R"("max_position_embeddings": 32768, "max_window_layers": 21, "rope_theta": 1000000.0,
  "sliding_window": 32768, "use_sliding_window": false, "use_mrope": false, )";
const std::string gemma = R"("head_dim": 256, "hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh",
  "pad_token_id": 0, "rope_scaling": null, "rope_theta": 10000.0, "max_position_embeddings": 8192,
  "attention_bias": false, "vocab_size": 256000, )";

std::string sizes_of(Index width, Index hidden, Index blocks, Index heads, Index key_heads, Index vocabulary,
                     const std::string& more = "") {
  return fmt::format(
      R"("hidden_size": {}, "intermediate_size": {}, "num_hidden_layers": {}, "num_attention_heads": {},
  "num_key_value_heads": {}, "vocab_size": {}{}{})",
      width, hidden, blocks, heads, key_heads, vocabulary, more.empty() ? "" : ", ", more);
}
std::string t5_sizes(Index width, Index hidden, Index blocks, Index heads, bool is_1_1 = false) {
  return t5_keys +
         fmt::format(R"("d_model": {}, "d_ff": {}, "num_layers": {}, "num_heads": {}{})", width, hidden,
                     blocks, heads,
                     is_1_1 ? R"(, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false)" : "");
}
std::string gpt2_sizes(Index width, Index blocks, Index heads) {
  return gpt2_keys + fmt::format(R"("n_embd": {}, "n_layer": {}, "n_head": {})", width, blocks, heads);
}

const std::string tied = R"("tie_word_embeddings": true)";
const std::vector<Published> all_published = {
    {"LLaMA 7B", "llama", sizes_of(4096, 11008, 32, 32, 32, 32000, R"("max_sequence_length": 2048)"),
     6738415616},
    {"LLaMA 30B", "llama", sizes_of(6656, 17920, 60, 52, 52, 32000), 32528943616},
    {"LLaMA 65B", "llama", sizes_of(8192, 22016, 80, 64, 64, 32000), 65285660672},
    {"Llama 2 13B", "llama", sizes_of(5120, 13824, 40, 40, 40, 32000, R"("pretraining_tp": 2)"), 13015864320},
    {"Llama 2 70B", "llama", sizes_of(8192, 28672, 80, 64, 8, 32000), 68976648192},
    {"CodeLlama 7B", "llama", sizes_of(4096, 11008, 32, 32, 32, 32016, R"("rope_theta": 1000000)"),
     6738546688},
    {"Llama 3 8B", "llama", sizes_of(4096, 14336, 32, 32, 8, 128256), 8030261248},
    {"Llama 3.1 70B", "llama", llama3 + sizes_of(8192, 28672, 80, 64, 8, 128256), 70553706496},
    {"Llama 3.1 405B", "llama", llama3 + sizes_of(16384, 53248, 126, 128, 8, 128256), 405853388800},
    {"Llama 3.2 1B", "llama", llama3 + sizes_of(2048, 8192, 16, 32, 8, 128256, tied), 1235814400},
    {"Llama 3.2 3B", "llama", llama3 + sizes_of(3072, 8192, 28, 24, 8, 128256, tied), 3212749824},
    {"TinyLlama 1.1B", "llama", sizes_of(2048, 5632, 22, 32, 4, 32000), 1100048384},
    {"SmolLM 135M", "llama",
     sizes_of(576, 1536, 30, 9, 3, 49152, R"("is_llama_config": true, "rope_interleaved": false, )" + tied),
     134515008},
    {"SmolLM 360M", "llama",
     sizes_of(960, 2560, 32, 15, 5, 49152, R"("unsloth_fixed": true, "_name_or_path": "x", )" + tied),
     361821120},
    {"Yi 6B", "llama", sizes_of(4096, 11008, 32, 32, 4, 64000, R"("pad_token_id": 0)"), 6061035520},
    {"DeepSeek LLM 7B", "llama", sizes_of(4096, 11008, 30, 32, 32, 102400), 6910365696},
    {"Mistral 7B v0.1", "mistral", sizes_of(4096, 14336, 32, 32, 8, 32000, R"("sliding_window": 4096)"),
     7241732096},
    {"Mistral 7B v0.3", "mistral", sizes_of(4096, 14336, 32, 32, 8, 32768, R"("sliding_window": null)"),
     7248023552},
    {"Mixtral 8x7B", "mixtral",
     sizes_of(4096, 14336, 32, 32, 8, 32000,
              R"("num_local_experts": 8, "num_experts_per_tok": 2, "output_router_logits": false)"),
     46702792704},
    {"Mixtral 8x22B", "mixtral",
     sizes_of(6144, 16384, 56, 48, 8, 32768, R"("num_local_experts": 8, "router_jitter_noise": 0.0)"),
     140630071296},
    {"Qwen2 0.5B", "qwen2", qwen + sizes_of(896, 4864, 24, 14, 2, 151936, tied), 494032768},
    {"Qwen2 1.5B", "qwen2", qwen + sizes_of(1536, 8960, 28, 12, 2, 151936, tied), 1543714304},
    {"Qwen2.5 7B", "qwen2", qwen + sizes_of(3584, 18944, 28, 28, 4, 152064), 7615616512},
    {"Qwen2.5 72B", "qwen2", qwen + sizes_of(8192, 29568, 80, 64, 8, 152064), 72706203648},
    {"Gemma 2B", "gemma", gemma + R"("hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18,
      "num_attention_heads": 8, "num_key_value_heads": 1)",
     2506172416},
    {"Gemma 7B", "gemma", gemma + R"("hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28,
      "num_attention_heads": 16, "num_key_value_heads": 16)",
     8537680896},
    {"T5 small", "t5", t5_sizes(512, 2048, 6, 8), 60506624},
    {"T5 base", "t5", t5_sizes(768, 3072, 12, 12), 222903552},
    {"T5 large", "t5", t5_sizes(1024, 4096, 24, 16), 737668096},
    {"Flan-T5 small", "t5",
     t5_keys + R"("d_model": 512, "d_ff": 1024, "num_layers": 8, "num_heads": 6, "num_decoder_layers": 8,
      "feed_forward_proj": "gated-gelu", "is_gated_act": true, "dense_act_fn": "gelu_new",
      "relative_attention_max_distance": 128, "tie_word_embeddings": false)",
     76961152},
    {"T5 v1.1 base", "t5", t5_sizes(768, 2048, 12, 12, true), 247577856},
    {"Flan-T5 large", "t5", t5_sizes(1024, 2816, 24, 16, true), 783150080},
    {"GPT-2", "gpt2", gpt2_sizes(768, 12, 12), 124439808},
    {"GPT-2 medium", "gpt2", gpt2_sizes(1024, 24, 16), 354823168},
    {"GPT-2 large", "gpt2", gpt2_sizes(1280, 36, 20), 774030080},
    {"GPT-2 XL", "gpt2", gpt2_sizes(1600, 48, 25), 1557611200},
    {"Phi-3 mini", "phi3", sizes_of(3072, 8192, 32, 32, 32, 32064), 0, "model_type: expected llama or"},
    {"Qwen3 0.6B", "qwen3", sizes_of(1024, 3072, 28, 16, 8, 151936, tied), 0,
     "qwen2 or gemma or t5, given qwen3"},
    {"Gemma 2 2B", "gemma2", sizes_of(2304, 9216, 26, 8, 4, 256000), 0, "model_type: expected llama or"},
    {"InternLM 7B", "llama", sizes_of(4096, 11008, 32, 32, 32, 103168, R"("attention_bias": true)"), 0,
     "attention_bias: expected false, given true"},
    {"a Llama in 4 bits", "llama",
     sizes_of(4096, 11008, 32, 32, 32, 32000,
              R"("quantization_config": {"bits": 4, "quant_method": "gptq"})"),
     0, "quantization_config: expected none, given object"},
    {"a Llama whose angles have other pairs", "llama",
     sizes_of(576, 1536, 30, 9, 3, 49152, R"("rope_interleaved": true)"), 0,
     "rope_interleaved: expected false, given true"}};

Index parameters_of(const Published& p) {
  const bool has_usual = p.family != "t5" && p.family != "gpt2";
  // A name may be there once, and a Gemma has an activation of its own.
  const std::string before = has_usual && p.family != "gemma" ? usual : "";
  const std::string text = fmt::format(R"({{"model_type": "{}", {}{}}})", p.family, before, p.sizes);
  const ForeignModel model = parse_model_config(text, p.name);
  if (p.family == "gpt2") {
    const dispatch::Network network = dispatch::gpt2_network(model);
    return dispatch::ModuleSizes(network, {}).total() / 4;
  }
  Index parameters = 0;
  const WorkloadKind& kind = p.family == "t5" ? t5() : decoder();
  const std::shared_ptr<Workload> network = kind.described_by(model, {});
  for (const Parameter& of : network->parameters()) parameters += num_elements(of.shape);
  CHECK(network->parameter_elements() == static_cast<double>(parameters));
  return parameters;
}

}  // namespace

TEST_CASE("config.json: published networks have the published number of parameters, or the key is named") {
  for (const Published& p : all_published) {
    CAPTURE(p.name);
    if (p.refusal.empty())
      CHECK(parameters_of(p) == p.parameters);
    else
      check_error([&] { parameters_of(p); }, Code::file, p.name, p.refusal);
  }
}
