/// make_files FOLDER: writes parameter files and batches for `check`, valid and invalid ones of all kinds.

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>

#include "engine/files/safetensors/writer.hpp"
#include "engine/weights/foreign_model.hpp"
#include "engine/workloads/t5/model.hpp"

namespace {

using shard::HostTensor;
using Tensors = std::map<std::string, HostTensor>;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// Multiples of 1/2 from -1 to 1, without a pattern that a cut along an axis could fit.
HostTensor tensor(const std::vector<std::int64_t>& shape) {
  std::int64_t size = 1;
  for (std::int64_t extent : shape) size *= extent;
  HostTensor t{shape, {}};
  for (std::int64_t i = 0; i < size; ++i) t.values.push_back(static_cast<float>(i * i * 7 % 5 - 2) / 2);
  return t;
}

/// Replaces the last value, which lies on the last of several devices.
Tensors with_last(Tensors tensors, const std::string& name, float value) {
  tensors.at(name).values.back() = value;
  return tensors;
}

Tensors with(Tensors tensors, const std::string& name, HostTensor t) {
  tensors[name] = std::move(t);
  return tensors;
}

Tensors without(Tensors tensors, const std::string& name) {
  tensors.erase(name);
  return tensors;
}

/// Four layers, so that each of three devices of a pipeline has a layer.
const Tensors params = {{"layer_0/weights", tensor({4, 6})},
                        {"layer_1/weights", tensor({6, 4})},
                        {"layer_2/weights", tensor({4, 6})},
                        {"layer_3/weights", tensor({6, 4})}};
/// `count` copies of a stack, as the experts of a router with equal logits: the mixture gives the stack's
/// result.
Tensors as_experts(const Tensors& stack, std::int64_t count) {
  Tensors mixture = {
      {"router/weights", {{4, count}, std::vector<float>(static_cast<std::size_t>(4 * count))}}};
  for (std::int64_t e = 0; e < count; ++e)
    for (const auto& [name, t] : stack) mixture["expert_" + std::to_string(e) + "/" + name] = t;
  return mixture;
}

const Tensors batch = {{"input", tensor({5, 4})}, {"output_grad", tensor({5, 4})}};

std::map<std::string, Tensors> parameter_files() {
  return {
      {"params", params},
      {"odd_depth", with(params, "layer_4/weights", tensor({4, 6}))},
      {"no_parameter", {}},
      {"layer_missing", without(params, "layer_1/weights")},
      {"unknown_name", with(params, "bias", tensor({4}))},
      {"rank_1", with(params, "layer_0/weights", tensor({4}))},
      {"rank_3", with(params, "layer_1/weights", tensor({6, 4, 1}))},
      {"unchained", with(params, "layer_1/weights", tensor({7, 4}))},
      {"one_transposed", with(params, "layer_1/weights", tensor({4, 6}))},
      {"two_layers", without(without(params, "layer_2/weights"), "layer_3/weights")},
      {"transposed", {{"layer_0/weights", tensor({6, 4})}, {"layer_1/weights", tensor({4, 6})}}},
      {"pytorch_names", {{"fc1.weight", tensor({6, 4})}}},
      {"zero_hidden", {{"layer_0/weights", tensor({4, 0})}, {"layer_1/weights", tensor({0, 4})}}},
      {"zero_width", {{"layer_0/weights", tensor({0, 6})}, {"layer_1/weights", tensor({6, 0})}}},
  };
}

/// The expected `gradients` of a batch without rows: every sum is empty.
Tensors gradients_of_no_rows(const Tensors& parameters) {
  Tensors zeros = {{"output", tensor({0, 4})}, {"input_grad", tensor({0, 4})}};
  for (const auto& [name, t] : parameters) zeros[name] = {t.shape, std::vector<float>(t.values.size())};
  return zeros;
}

/// The files for each variant of each chapter: a folder for the stack, and one for each number of experts.
std::map<std::string, Tensors> files_of_networks() {
  std::map<std::string, Tensors> files;
  auto add = [&](const std::string& folder, const Tensors& parameters, const std::string& last) {
    files[folder + "/params"] = parameters;
    files[folder + "/params_nan"] = with_last(parameters, last + "layer_3/weights", nan);
    files[folder + "/params_inf"] = with_last(parameters, last + "layer_0/weights", -infinity);
    files[folder + "/gradients_of_no_rows"] = gradients_of_no_rows(parameters);
  };
  add("stack", params, "");
  add("experts_1", as_experts(params, 1), "expert_0/");
  add("experts_2", as_experts(params, 2), "expert_1/");
  return files;
}

std::map<std::string, Tensors> batch_files() {
  return {
      {"batch", batch},
      {"no_input", without(batch, "input")},
      {"no_output_grad", without(batch, "output_grad")},
      {"input_width", with(batch, "input", tensor({5, 3}))},
      {"output_grad_width", with(batch, "output_grad", tensor({5, 6}))},
      {"row_counts", with(batch, "output_grad", tensor({4, 4}))},
      {"input_scalar", with(batch, "input", tensor({}))},
      {"input_nan", with_last(batch, "input", nan)},
      {"input_inf", with_last(batch, "input", infinity)},
      {"output_grad_nan", with_last(batch, "output_grad", nan)},
      {"output_grad_inf", with_last(batch, "output_grad", -infinity)},
      {"no_rows", {{"input", tensor({0, 4})}, {"output_grad", tensor({0, 4})}}},
  };
}

/// Sequences of tokens with labels, for the network in the folder mistral.
std::map<std::string, Tensors> token_files() {
  const HostTensor ids{{1, 3}, {1, 6, 0}}, labels{{1, 3}, {6, -100, 2}};
  return {
      {"tokens", {{"input_ids", ids}, {"labels", labels}}},
      {"tokens_outside", {{"input_ids", {{1, 3}, {1, 7, 0}}}, {"labels", labels}}},
      {"tokens_long",
       {{"input_ids", {{1, 10}, std::vector<float>(10)}}, {"labels", {{1, 10}, std::vector<float>(10)}}}},
      {"tokens_bare", {{"input_ids", ids}}},
      {"tokens_seen", {{"input_ids", ids}, {"labels", labels}, {"attention_mask", {{1, 3}, {1, 1, 1}}}}},
      {"tokens_masked", {{"input_ids", ids}, {"labels", labels}, {"attention_mask", {{1, 3}, {1, 1, 0}}}}},
      {"tokens_placed", {{"input_ids", ids}, {"labels", labels}, {"position_ids", {{1, 3}, {1, 2, 3}}}}},
      {"tokens_unlabelled", {{"input_ids", ids}, {"labels", {{1, 3}, {-100, -100, -100}}}}},
  };
}

/// The tensors of a small Mistral. `check` writes its config.json.
void write_mistral(const std::filesystem::path& folder) {
  Tensors tensors = {{"model.embed_tokens.weight", tensor({7, 4})},
                     {"model.norm.weight", tensor({4})},
                     {"lm_head.weight", tensor({7, 4})}};
  for (const std::string block : {"model.layers.0.", "model.layers.1."})
    for (const auto& [name, shape] :
         std::map<std::string, std::vector<std::int64_t>>{{"input_layernorm", {4}},
                                                          {"post_attention_layernorm", {4}},
                                                          {"self_attn.q_proj", {4, 4}},
                                                          {"self_attn.k_proj", {2, 4}},
                                                          {"self_attn.v_proj", {2, 4}},
                                                          {"self_attn.o_proj", {4, 4}},
                                                          {"mlp.gate_proj", {3, 4}},
                                                          {"mlp.up_proj", {3, 4}},
                                                          {"mlp.down_proj", {4, 3}}})
      tensors[block + name + ".weight"] = tensor(shape);
  std::filesystem::create_directory(folder / "mistral");
  shard::write_safetensors(folder / "mistral" / "model.safetensors", tensors);
}

/// The tensors of a small T5, with an encoder and a decoder. `check` writes its config.json.
void write_t5_network(const std::filesystem::path& folder) {
  shard::T5Model m;
  m.vocabulary = 7, m.model_dim = 4, m.heads = 2, m.head_dim = 2, m.hidden_dim = 3;
  m.encoder_blocks = 1, m.decoder_blocks = 2, m.buckets = 8;
  const shard::ForeignNames names = shard::t5_names(m);
  Tensors tensors;
  for (const shard::Parameter& p : m.parameters()) {
    const shard::ForeignName& stored = names.at(p.name);
    tensors[stored.name] = stored.is_transposed ? transposed(tensor(p.shape)) : tensor(p.shape);
  }
  std::filesystem::create_directory(folder / "t5_network");
  shard::write_safetensors(folder / "t5_network" / "model.safetensors", tensors);
}

void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
}

std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Files that our writer refuses to write.
void write_malformed_files(const std::filesystem::path& folder) {
  std::string good = read_bytes(folder / "params");
  write_bytes(folder / "truncated", good.substr(0, good.size() - 1));
  write_bytes(folder / "header_truncated", good.substr(0, 20));
  write_bytes(folder / "empty", "");
  write_bytes(folder / "text", "1,2,3,4\n1,2,3,4\n");
  write_bytes(folder / "lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n");
  std::string header = R"({"layer_0/weights":{"dtype":"U64","shape":[4,4],"data_offsets":[0,128]},)"
                       R"("layer_1/weights":{"dtype":"U64","shape":[4,4],"data_offsets":[128,256]}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size());  // little-endian; below 256
  write_bytes(folder / "integers", length + header + std::string(256, '\1'));
}

/// The first two layers of the stack as the block of a T5, in two files. `check` writes its config.json.
void write_t5(const std::filesystem::path& folder) {
  const std::string before = "encoder.block.0.layer.1.DenseReluDense.";
  shard::write_safetensors(folder / "model-00001-of-00002.safetensors",
                           {{before + "wi.weight", shard::transposed(params.at("layer_0/weights"))}});
  shard::write_safetensors(folder / "model-00002-of-00002.safetensors",
                           {{before + "wo.weight", shard::transposed(params.at("layer_1/weights"))}});
}

}  // namespace

int main(int, char** argv) {
  const std::filesystem::path folder = argv[1];
  for (const char* network : {"stack", "experts_1", "experts_2", "t5"})
    std::filesystem::create_directories(folder / network);
  for (const auto& files : {parameter_files(), files_of_networks(), batch_files(), token_files()})
    for (const auto& [name, tensors] : files) shard::write_safetensors(folder / name, tensors);
  write_malformed_files(folder);
  write_t5(folder / "t5");
  write_mistral(folder);
  write_t5_network(folder);
}
