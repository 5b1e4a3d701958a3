/// A T5's feed-forward block in a folder of Hugging Face: names, shapes, and transposed storage.

#include "engine/workloads/mlp/t5_block.hpp"

#include <filesystem>

#include "engine/files/model_folder.hpp"
#include "engine/files/safetensors/safetensors.hpp"
#include "engine/weights/checkpoint.hpp"
#include "engine/workloads/mlp/model.hpp"
#include "tests/files/safetensors_files.hpp"
#include "tests/harness/devices.hpp"

using namespace shard;
using namespace shard::testing;

namespace {

/// A T5 whose encoder has two blocks, and whose decoder has one.
ForeignModel blocks_of_t5(const std::map<std::string, std::string>& changes = {}) {
  ForeignModel model{"tiny", {{"model_type", "t5"}, {"d_model", "2"}, {"d_ff", "3"}}, nullptr};
  for (const auto& [name, value] : changes) model.config[name] = value;
  std::map<std::string, HostTensor> tensors;
  for (const std::string block :
       {"encoder.block.0.layer.1", "encoder.block.1.layer.1", "decoder.block.0.layer.2"}) {
    tensors[block + ".DenseReluDense.wi.weight"] = {{3, 2}, {1, 2, 3, 4, 5, 6}};
    tensors[block + ".DenseReluDense.wo.weight"] = {{2, 3}, {7, 8, 9, 10, 11, 12}};
  }
  model.parameters = host_checkpoint(std::move(tensors), "tiny");
  return model;
}

void check_block_refused(const ForeignModel& model, const std::string& block, Code code,
                         const std::string& source, const std::string& reason) {
  check_error([&] { t5_block(model, block); }, code, source, reason);
}

}  // namespace

TEST_CASE("T5: a block's parameters have our names and shapes, and are stored transposed") {
  ForeignModel model = blocks_of_t5();
  const ForeignNames names = t5_block(model, "decoder.0");
  CHECK(names.at("layer_0/weights").name == "decoder.block.0.layer.2.DenseReluDense.wi.weight");
  CHECK(t5_block(model, "encoder.1").at("layer_1/weights").name ==
        "encoder.block.1.layer.1.DenseReluDense.wo.weight");
  const auto checkpoint = renamed(std::move(model.parameters), names, "tiny: decoder.0");
  CHECK(checkpoint->source() == "tiny: decoder.0");
  CHECK(checkpoint->names() == std::vector<std::string>{"layer_0/weights", "layer_1/weights"});
  CHECK(checkpoint->shape("layer_0/weights") == Shape{2, 3});
  CHECK(checkpoint->read("layer_0/weights", 0, 0, 2) == std::vector<float>{1, 3, 5, 2, 4, 6});
  CHECK(checkpoint->read("layer_0/weights", 0, 1, 2) == std::vector<float>{2, 4, 6});
  CHECK(checkpoint->read("layer_0/weights", 1, 1, 3) == std::vector<float>{3, 5, 4, 6});
  CHECK(checkpoint->read("layer_0/weights", 1, 1, 1).empty());
  CHECK(checkpoint->shape("layer_1/weights") == Shape{3, 2});
  CHECK(checkpoint->read("layer_1/weights", 0, 2, 3) == std::vector<float>{9, 12});
  CHECK_FALSE(checkpoint->contains("decoder.block.0.layer.2.DenseReluDense.wi.weight"));
  check_error([&] { checkpoint->shape("wi"); }, Code::file, "tiny: decoder.0", "expected a parameter wi");
  check_error([&] { checkpoint->read("layer_0/weights", 1, 0, 4); }, Code::argument,
              "part of layer_0/weights", "expected indices of (2, 3), given (0-1, 0-3)");
}

TEST_CASE("renamed: what is not transposed is read as it is, and what is no matrix is refused") {
  const auto stored = [] {
    return host_checkpoint({{"w", {{2, 2}, {1, 2, 3, 4}}}, {"b", {{2}, {1, 2}}}}, "it");
  };
  CHECK(renamed(stored(), {{"ours", {"w", false}}}, "it")->read("ours", 0, 1, 2) == std::vector<float>{3, 4});
  const ForeignNames no_matrix = {{"ours", {"b", true}}}, not_there = {{"ours", {"v", true}}};
  check_error([&] { renamed(stored(), no_matrix, "it"); }, Code::file, "it",
              "b: expected a matrix, given (2,)");
  check_error([&] { renamed(stored(), not_there, "it"); }, Code::file, "it", "expected a parameter v");
}

TEST_CASE("renamed: a slice of what is transposed reads no byte of other devices' slices") {
  const Folder folder;
  const std::string file = folder / "model.safetensors";
  save(folder, R"({"model_type":"t5"})", "config.json");
  write_safetensors(file, {{"a", {{2, 3}, {1, 2, 3, 4, 5, 6}}}});
  const auto size = std::filesystem::file_size(file);
  const auto checkpoint =
      renamed(std::move(open_model_folder(folder.path).parameters), {{"ours", {"a", true}}}, "it");
  REQUIRE(checkpoint->shape("ours") == Shape{3, 2});
  REQUIRE(truncate(file.c_str(), static_cast<off_t>(size - 12)) == 0);
  CHECK(checkpoint->read("ours", 1, 0, 1) == std::vector<float>{1, 2, 3});
  check_error([&] { checkpoint->read("ours", 1, 1, 2); }, Code::file, file,
              "the file shrank while it was read");
}

TEST_CASE("renamed: a large matrix that lies transposed is read in whole rows of its file, each once") {
  constexpr Index rows = 300, columns = 700;  // as stored
  const Folder folder;
  const HostTensor stored = reals({rows, columns}, 0, 1);
  write_safetensors(folder / "model.safetensors", {{"a", stored}});
  const auto checkpoint =
      renamed(open_checkpoint(folder / "model.safetensors"), {{"ours", {"a", true}}}, "it");
  Index next = 0;
  int pieces = 0;
  checkpoint->read_in_pieces("ours", {{0, columns}, {0, rows}}, [&](const Ranges& piece, auto values) {
    CHECK(piece[0] == Range{0, columns});
    CHECK(piece[1].begin == next);
    CHECK(static_cast<Index>(values.size()) == columns * piece[1].size());
    next = piece[1].end;
    ++pieces;
  });
  CHECK(next == rows);
  CHECK(pieces == 4);
  CHECK(checkpoint->whole("ours").to_host() == shard::transposed(stored).values);
  for (const auto& [axis, begin, end] : {std::tuple(0, 13, 650), std::tuple(1, 13, 290)})
    CHECK(checkpoint->slice("ours", axis, begin, end).to_host() ==
          checkpoint->read("ours", axis, begin, end));
}

TEST_CASE("T5: hyper-parameters that change what a block computes are refused") {
  const std::vector<std::pair<std::map<std::string, std::string>, std::string>> changes = {
      {{{"model_type", "mt5"}}, "model_type: expected t5, given mt5"},
      {{{"feed_forward_proj", "gated-gelu"}},
       "feed_forward_proj: expected relu (this block has a gate, a third matrix; two layers have none), "
       "given "
       "gated-gelu"},
      {{{"feed_forward_proj", "gated-relu"}}, "this block has a gate"},
      {{{"feed_forward_proj", "gelu"}}, "feed_forward_proj: expected relu, given gelu"},
      {{{"is_gated_act", "true"}}, "is_gated_act: expected false, given true"},
      {{{"dense_act_fn", "gelu_new"}}, "dense_act_fn: expected relu, given gelu_new"},
      {{{"quantization_config", "object"}}, "quantization_config: expected none, given object"},
      {{{"d_ff", "4"}}, "wi.weight: expected (4, 2), which d_model and d_ff say, given (3, 2)"},
      {{{"d_model", "1"}}, "wi.weight: expected (3, 1), which d_model and d_ff say, given (3, 2)"},
      {{{"d_model", "2.0"}}, "wi.weight: expected (3, 2.0), which d_model and d_ff say, given (3, 2)"},
  };
  for (const auto& [change, reason] : changes)
    check_block_refused(blocks_of_t5(change), "encoder.0", Code::file, "tiny: ", reason);
  for (const std::string name : {"model_type", "d_model", "d_ff"}) {
    ForeignModel model = blocks_of_t5();
    model.config.erase(name);
    check_block_refused(model, "encoder.0", Code::file, "tiny: ",
                        name == "model_type" ? "expected t5, given none"
                        : name == "d_ff"     ? "(2048, 2)"
                                             : "(3, 512)");
  }
  CHECK(t5_block(blocks_of_t5(
                     {{"feed_forward_proj", "relu"}, {"is_gated_act", "false"}, {"dense_act_fn", "relu"}}),
                 "encoder.0")
            .size() == 2);
}

TEST_CASE("T5: matrices that do not fit each other are refused") {
  ForeignModel model = blocks_of_t5();
  const std::string before = "encoder.block.0.layer.1.DenseReluDense.";
  model.parameters = host_checkpoint({{before + "wi.weight", {{3, 2}, {1, 2, 3, 4, 5, 6}}},
                                      {before + "wo.weight", {{3, 2}, {1, 2, 3, 4, 5, 6}}}},
                                     "tiny");
  check_block_refused(model, "encoder.0", Code::file,
                      "tiny: ", "wo.weight: expected (2, 3), which d_model and");
  model.parameters = host_checkpoint({{before + "wi.weight", {{3, 2}, {1, 2, 3, 4, 5, 6}}}}, "tiny");
  check_block_refused(model, "encoder.0", Code::file,
                      "tiny: ", "expected a parameter " + before + "wo.weight");
}

TEST_CASE("T5: a block that does not exist is refused, with how many there are") {
  const std::string listed =
      "--block: expected encoder.0 to encoder.1 (2 blocks) or decoder.0 (1 block), given ";
  for (const std::string block : {"encoder.2", "decoder.1", "encoder.00", "encoder.99999999999999999999"})
    check_block_refused(blocks_of_t5(), block, Code::file, "tiny: ", listed + block);
  ForeignModel empty = blocks_of_t5();
  empty.parameters = host_checkpoint({}, "tiny");
  check_block_refused(empty, "encoder.0", Code::file, "tiny: ",
                      "--block: expected a block of a T5, of which its files have none, given encoder.0");
  for (const std::string block :
       {"", "encoder", "encoder.", "encoder.x", "encoder.-1", "layers.0", ".0", "encoder.0.1"})
    check_block_refused(blocks_of_t5(), block, Code::usage, "--block",
                        "expected a block of a T5, such as encoder.0, given ");
}
