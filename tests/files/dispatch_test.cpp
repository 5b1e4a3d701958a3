/// Maps from modules to devices, compared with what Accelerate 1.15 makes of some small networks. For random
/// networks, tests/against_accelerate.py compares them with Accelerate itself.

#include <fmt/format.h>

#include <fstream>

#include "10_checkpoints/dispatch/data_flow.hpp"
#include "10_checkpoints/dispatch/device_map.hpp"
#include "10_checkpoints/dispatch/families.hpp"
#include "engine/workloads/decoder/mistral.hpp"
#include "tests/files/safetensors_files.hpp"

using namespace shard;
using namespace shard::dispatch;
using namespace shard::testing;

namespace {

DecoderModel small_decoder(Index blocks, bool is_tied, Index experts = 0) {
  DecoderModel m;
  m.vocabulary = 50, m.model_dim = 8, m.heads = 2, m.key_heads = 1, m.head_dim = 4, m.hidden_dim = 12;
  m.num_blocks = blocks, m.is_tied = is_tied, m.experts = experts, m.top_k = experts > 0 ? 2 : 0;
  return m;
}

T5Model small_t5() {
  T5Model m;
  m.vocabulary = 30, m.model_dim = 8, m.heads = 2, m.head_dim = 4, m.hidden_dim = 12;
  m.encoder_blocks = m.decoder_blocks = 2, m.buckets = 4;
  return m;
}

/// "model.norm 0" in each line, in the order of the tree.
std::string text_of(const DeviceMap& map) {
  std::string text;
  for (const MapLine& line : map) text += fmt::format("{} {}\n", line.path, line.place);
  return text;
}

std::string filled(const Network& network, const std::string& memory, std::vector<std::string> whole = {}) {
  return text_of(fill_places(network, {parse_memory(memory), std::move(whole), {}}).map);
}

std::string shares(const MapSettings& settings, bool is_low_zero) {
  std::string text;
  for (const auto& [place, bytes] :
       balanced_memory(decoder_network(small_decoder(4, false)), settings, is_low_zero))
    text += fmt::format("{}={} ", place, bytes);
  return text;
}

std::vector<std::string> classes(const std::vector<KeptWhole>& kept) {
  std::vector<std::string> names;
  for (const KeptWhole& k : kept) names.push_back(k.class_name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("dispatch: blocks fill one place after the other, and tied tensors come to one place") {
  const Network network = decoder_network(small_decoder(4, true));
  CHECK(filled(network, "0=6000B,1=4000B,cpu=4000B", {"MistralDecoderLayer"}) ==
        "model.embed_tokens 0\nmodel.layers.0 0\nmodel.layers.1 1\nmodel.layers.2 1\nmodel.layers.3 cpu\n"
        "model.norm cpu\nmodel.rotary_emb cpu\nlm_head 0\n");
  CHECK(filled(network, "0=6000B,1=4000B,cpu=4000B") ==
        "model.embed_tokens 0\nmodel.layers.0 0\nmodel.layers.1 0\nmodel.layers.2 1\nmodel.layers.3 1\n"
        "model.norm 1\nmodel.rotary_emb cpu\nlm_head 0\n");
}

TEST_CASE("dispatch: what is on one place alone is one line") {
  CHECK(filled(decoder_network(small_decoder(4, true)), "0=1GB") == " 0\n");
  CHECK(filled(t5_network(small_t5()), "0=500B,cpu=0B", {"T5Block"}) == " disk\n");
}

TEST_CASE("dispatch: a module that is divided has a line for each parameter and each module in it") {
  CHECK(filled(decoder_network(small_decoder(2, false, 3)), "0=11000B,cpu=11000B") ==
        "model.embed_tokens 0\nmodel.layers.0 0\nmodel.layers.1.self_attn 0\nmodel.layers.1.mlp.gate 0\n"
        "model.layers.1.mlp.experts.gate_up_proj 0\nmodel.layers.1.mlp.experts.down_proj cpu\n"
        "model.layers.1.mlp.experts.act_fn cpu\nmodel.layers.1.input_layernorm cpu\n"
        "model.layers.1.post_attention_layernorm cpu\nmodel.norm cpu\nmodel.rotary_emb cpu\nlm_head cpu\n");
}

TEST_CASE("dispatch: where an embedding is tied to others, the stacks that have them are divided for it") {
  const Network network = t5_network(small_t5());
  const std::string memory = "0=4000B,1=3500B,cpu=2700B";
  CHECK(filled(network, memory, {"T5Block"}) ==
        "shared 0\nencoder.embed_tokens 0\nencoder.block.0 1\nencoder.block.1 disk\n"
        "encoder.final_layer_norm disk\nencoder.dropout disk\ndecoder.embed_tokens 0\ndecoder.block disk\n"
        "decoder.final_layer_norm disk\ndecoder.dropout disk\nlm_head 0\n");
  CHECK(filled(network, memory, classes(kept_whole(network))) ==
        "shared 0\nencoder.embed_tokens 0\nencoder.block.0 0\nencoder.block.1 1\nencoder.final_layer_norm 1\n"
        "encoder.dropout 1\ndecoder.embed_tokens 0\ndecoder.block.0.layer.0 1\ndecoder.block.0.layer.1 cpu\n"
        "decoder.block.0.layer.2 disk\ndecoder.block.1 disk\ndecoder.final_layer_norm disk\n"
        "decoder.dropout disk\nlm_head 0\n");
}

TEST_CASE(
    "dispatch: the first device and the host keep room for the largest layer that is still to be placed") {
  const auto kept = fill_places(decoder_network(small_decoder(4, true)),
                                {parse_memory("0=6000B,1=4000B,cpu=4000B"), {"MistralDecoderLayer"}, {}})
                        .kept_free;
  CHECK(kept == std::map<std::string, Index>{{"0", 1984}, {"cpu", 0}});
}

TEST_CASE("dispatch: balancing leaves each device but the last its share and a block more") {
  const Memory memory = parse_memory("0=9000B,1=9000B,2=9000B");
  CHECK(shares({memory, {"MistralDecoderLayer"}, {}}, false) == "0=6208 1=6208 2=9000 ");
  CHECK(shares({memory, {"MistralDecoderLayer"}, "BF16"}, false) == "0=3104 1=3104 2=9000 ");
  CHECK(shares({memory, {"MistralDecoderLayer"}, {}}, true) == "0=0 1=8072 2=9000 ");
  CHECK(shares({parse_memory("cpu=9000B"), {}, {}}, false) == "cpu=9000 ");
  const Memory with_a_gap = parse_memory("0=1GB,2=1GB");
  check_error(
      [&] {
        shares({with_a_gap, {}, {}}, true);
      },
      Code::usage, "--device-map", "expected devices 0, 1, ... with balanced_low_0, given none of number 1");
}

TEST_CASE("dispatch: memory is told by place, and its unit must be there") {
  const Memory memory = parse_memory("cpu=1.5GiB,10=2MB,disk=0B,9=3KiB");
  std::string text;
  for (const auto& [place, bytes] : memory) text += fmt::format("{}={} ", place, bytes);
  CHECK(text == "9=3072 10=2000000 cpu=1610612736 disk=0 ");
  auto refused = [](const std::string& given, const std::string& line) {
    CAPTURE(given);
    check_error([&] { parse_memory(given); }, Code::usage, "--memory", line);
  };
  refused("0=24", "expected a size with a unit, such as 24GiB, 500MB or 1000B, given 0=24");
  refused("0=1iB", "expected a size with a unit");
  refused("0=-1GB", "expected a size with a unit");
  refused("gpu=1GB", "expected a place, which is 0, 1, ..., cpu or disk, given gpu");
  refused("01=1GB", "expected a place");
  refused("24GiB", "expected places and sizes, such as 0=24GiB,1=24GiB,cpu=64GiB, given 24GiB");
  refused("0=1GB,0=2GB", "expected each place once, given 0 twice");
}

TEST_CASE("dispatch: what stays whole follows from the activations that are live") {
  CHECK(classes(kept_whole(decoder_network(small_decoder(3, true)))) == Names{"MistralDecoderLayer"});
  for (const auto& [family, layer] : std::map<std::string, std::string>{
           {"llama", "LlamaDecoderLayer"}, {"qwen2", "Qwen2DecoderLayer"}, {"gemma", "GemmaDecoderLayer"}})
    CHECK(classes(kept_whole(decoder_network(small_decoder(3, true), family))) == Names{layer});
  CHECK(classes(kept_whole(gpt2_network({"tiny", {{"n_layer", "2"}}, nullptr}))) == Names{"GPT2Block"});
  CHECK(classes(kept_whole(decoder_network(small_decoder(3, false, 4)))) == Names{"MixtralDecoderLayer"});
  // transformers 5.23 lists T5Block. But between the block's residual blocks, only one activation is live.
  T5Model gated = small_t5();
  gated.hidden = Hidden::geglu;
  for (const T5Model& m : {small_t5(), gated})
    CHECK(classes(kept_whole(t5_network(m))) ==
          Names{"T5LayerCrossAttention", "T5LayerFF", "T5LayerSelfAttention"});
  CHECK(kept_whole(decoder_network(small_decoder(1, false)))[0].why() ==
        "MistralDecoderLayer: behind model.layers.0.input_layernorm, 3 activations are live (angles, hidden, "
        "normed); at its borders, 2");
}

TEST_CASE("dispatch: an activation is live from its step to the last one that reads it") {
  const auto live = live_at_cuts({{"a", {"x"}, {"y"}}, {"b", {"y"}, {"z"}}, {"c", {"z", "y"}, {"y"}}});
  using Live = std::set<std::string>;
  CHECK(live == std::vector<Live>{{"x"}, {"y"}, {"y", "z"}, {"y"}});
}

TEST_CASE("dispatch: each module that computes something is one of the tree") {
  for (const Network& network : {decoder_network(small_decoder(2, true)),
                                 decoder_network(small_decoder(2, true, 3)), t5_network(small_t5())})
    for (const Step& step : network.flow) {
      CAPTURE(step.module);
      CHECK(find_module(network.root, step.module) != nullptr);
    }
}

TEST_CASE("dispatch: a map in a file is read as it is written, and what is wrong in it is one line") {
  const Folder folder;
  const std::string path = folder / "map.json";
  const Network network = decoder_network(small_decoder(2, true));
  auto reads = [&](const std::string& text) {
    std::ofstream(path) << text;
    return read_device_map(path, network);
  };
  const DeviceMap map = fill_places(network, {parse_memory("0=5000B,cpu=5000B"), {}, {}}).map;
  CHECK(json_of(map).starts_with("{\n  \"model.embed_tokens\": 0,\n"));
  CHECK(text_of(reads(json_of(map))).find("lm_head 0\n") == 0);  // sorted by name, as in the file
  CHECK(reads(R"({"": 1, "model.norm": "disk"})").size() == 2);
  CHECK(place_of(reads(R"({"": 1, "model.norm": "disk"})"), "model.norm.weight") == "disk");
  CHECK(place_of(reads(R"({"": 1, "model.norm": "disk"})"), "lm_head") == "1");
  auto refused = [&](const std::string& text, const std::string& line) {
    CAPTURE(text);
    check_error([&] { reads(text); }, Code::file, "map.json", line);
  };
  refused(R"({"model": 0, "lm_heat": 0})",
          "wrong module, expected one that the network has, given \"lm_heat\"");
  refused(R"({"model.layers": 0, "model.norm": 0, "lm_head": 0})",
          "no place, expected one for each parameter, given none for model.embed_tokens.weight");
  refused(R"({"": "gpu"})",
          "module \"\", expected a place, which is 0, 1, ..., \"cpu\" or \"disk\", given \"gpu\"");
  for (const char* wrong : {"-1", "1.5", "\"0\"", "[0]", "true"})
    refused(fmt::format(R"({{"": {}}})", wrong), "expected a place");
  refused(
      R"({"model": 0, "lm_head": "cpu"})",
      "tied parameters, expected lm_head.weight and model.embed_tokens.weight in one place, given cpu and 0");
}

TEST_CASE("dispatch: a folder needs no weights; where it has them, their headers say the types") {
  const Folder folder;
  std::ofstream(folder / "config.json") << R"({"model_type": "mistral", "vocab_size": 50, "hidden_size": 8,
    "head_dim": 4, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "sliding_window": null, "torch_dtype": "bfloat16"})";
  const std::string path = folder / "";
  const Index elements = 2 * 50 * 8 + 8 * (8 + 4 + 4 + 8) + 3 * 8 * 12 + 3 * 8, frequencies = 2 * 2 * 4;
  CHECK(ModuleSizes(read_network(path), {}).total() == 2 * elements + frequencies);
  CHECK(ModuleSizes(read_network(folder / "config.json"), "F32").total() == 2 * elements + frequencies);

  std::vector<SafetensorsLine> lines;
  const DecoderModel m = small_decoder(1, false);
  const Network network = decoder_network(m);
  for (const auto& [ours, theirs] : mistral_names(m)) {
    Shape shape;
    for (const Parameter& p : m.parameters())
      if (p.name == ours) shape = p.shape;
    if (theirs.is_transposed) std::swap(shape[0], shape[1]);
    lines.push_back({theirs.name, theirs.name == "lm_head.weight" ? "F64" : "F16", shape});
  }
  SafetensorsWriter writer(folder / "model.safetensors", lines);
  for (const SafetensorsLine& line : writer.order()) {
    const std::vector<std::byte> zeros(line.bytes());
    writer.write(zeros.data(), zeros.size());
  }
  writer.commit();
  CHECK(ModuleSizes(read_network(path), {}).total() == 2 * elements + 6 * 50 * 8 + frequencies);
  CHECK(ModuleSizes(read_network(path), "F32").total() == 2 * elements + 2 * 50 * 8 + frequencies);
}
