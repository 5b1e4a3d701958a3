// A folder as Hugging Face's save_pretrained writes it, with its tensors in one file or in several.

#include "engine/files/model_folder.hpp"

#include <filesystem>
#include <fstream>

#include "tests/files/safetensors_files.hpp"

using namespace std::string_literals;
using namespace shard;
using namespace shard::testing;

namespace {

const std::string a_config =
    R"({"model_type":"t5","d_model":2,"d_ff":3,"tie_word_embeddings":true,)"
    R"("layer_norm_epsilon":1e-06,"architectures":["T5"],"dtype":null,"rope":{"theta":2}})";
const std::string index_name = "model.safetensors.index.json";
const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";

/// The text of an index; `entries` is the inside of the JSON object weight_map.
std::string index_of(const std::string& entries) {
  return R"({"metadata":{"total_size":16},"weight_map":{)" + entries + "}}";
}
std::string in(const std::string& name, const std::string& file) {
  return "\"" + name + "\":\"" + file + "\"";
}

/// Tensors `a` (2, 3) and `b` (2) in two files. The second file also has `c`, which the index does not list.
void write_shards(const Folder& folder) {
  save(folder, a_config, "config.json");
  save(folder, index_of(in("a", first) + "," + in("b", second)), index_name);
  write_safetensors(folder / first, {{"a", {{2, 3}, {1, 2, 3, 4, 5, 6}}}});
  write_safetensors(folder / second, {{"b", {{2}, {7, 8}}}, {"c", {{1}, {9}}}});
}

void check_folder_refused(const Folder& folder, const std::string& path, const std::string& reason) {
  check_error([&] { open_model_folder(folder.path); }, Code::file, path, reason);
}

/// Checks that reading the tensor `a` of the folder is refused with this reason.
void check_tensor_refused(const Folder& folder, const std::string& path, const std::string& reason) {
  const ForeignModel model = open_model_folder(folder.path);
  check_error([&] { model.parameters->read("a", 0, 0, 1); }, Code::file, path, reason);
}

}  // namespace

TEST_CASE("model folder: tensors are read from the files that the index names") {
  const Folder folder;
  write_shards(folder);
  const ForeignModel model = open_model_folder(folder.path);
  CHECK(model.source == folder.path);
  CHECK(model.parameters->source() == folder.path);
  CHECK(model.parameters->shape("a") == Shape{2, 3});
  CHECK(model.parameters->read("a", 1, 1, 3) == std::vector<float>{2, 3, 5, 6});
  CHECK(model.parameters->read("b", 0, 1, 2) == std::vector<float>{8});
  CHECK_FALSE(model.parameters->contains("d"));
  check_error([&] { model.parameters->shape("d"); }, Code::file, folder.path, "expected a parameter d");
}

TEST_CASE(
    "model folder: sequences end in what generation_config.json says, or else config.json or its family") {
  const Folder folder;
  auto ends = [&](const std::string& config, const std::string& generation = "") {
    save(folder, config, "config.json");
    if (!generation.empty()) save(folder, generation, "generation_config.json");
    return end_tokens(folder.path);
  };
  CHECK(ends(R"({"model_type":"mistral"})") == std::vector<Index>{2});
  CHECK(ends(R"({"model_type":"t5"})") == std::vector<Index>{1});
  CHECK(ends(R"({"eos_token_id":null})").empty());
  CHECK(ends(R"({"eos_token_id":[5,6]})") == std::vector<Index>{5, 6});
  check_error([&] { ends(R"({"eos_token_id":"</s>"})"); }, Code::file, folder / "config.json",
              "eos_token_id, expected a token, a list of tokens, or null, given \"</s>\"");
  CHECK(ends(R"({"eos_token_id":5})", R"({"eos_token_id":4})") == std::vector<Index>{4});
  CHECK(ends(R"({"eos_token_id":5})", "{}").empty());
}

TEST_CASE(
    "model folder: hyper-parameters are text, those of an object have its name, and null says nothing") {
  const Folder folder;
  write_shards(folder);
  const ForeignModel model = open_model_folder(folder.path);
  const std::map<std::string, std::string> expected = {{"model_type", "t5"},
                                                       {"d_model", "2"},
                                                       {"d_ff", "3"},
                                                       {"tie_word_embeddings", "true"},
                                                       {"layer_norm_epsilon", "1e-06"},
                                                       {"architectures", R"(["T5"])"},
                                                       {"dtype", "null"},
                                                       {"rope", "object"},
                                                       {"rope.theta", "2"}};
  CHECK(model.config == expected);
  CHECK(model.hyper_parameter("d_ff", "2048") == "3");
  CHECK(model.hyper_parameter("d_kv", "64") == "64");
  CHECK(model.hyper_parameter("dtype", "float32") == "float32");
}

TEST_CASE("model folder: a file is opened when it is asked for, and once") {
  const Folder folder;
  write_shards(folder);
  save(folder, "no tensors", second);
  const ForeignModel model = open_model_folder(folder.path);
  CHECK(model.parameters->contains("a"));
  std::filesystem::remove(folder / first);
  CHECK(model.parameters->read("a", 0, 1, 2) == std::vector<float>{4, 5, 6});
  check_error([&] { model.parameters->shape("b"); }, Code::file, folder / second, "header length");
}

TEST_CASE("model folder: a tensor that the index does not know counts if a file has it") {
  const Folder folder;
  write_shards(folder);
  {
    const ForeignModel model = open_model_folder(folder.path);
    CHECK(model.parameters->read("c", 0, 0, 1) == std::vector<float>{9});
    CHECK(model.parameters->names() == std::vector<std::string>{"a", "b", "c"});
  }
  write_safetensors(folder / first, {{"a", {{1}, {1}}}, {"c", {{1}, {2}}}, {"b", {{1}, {3}}}});
  const ForeignModel model = open_model_folder(folder.path);
  CHECK(model.parameters->read("c", 0, 0, 1) == std::vector<float>{9});  // from the last file
  CHECK(model.parameters->read("b", 0, 0, 1) == std::vector<float>{7});  // from the file in the index
  CHECK(model.parameters->names() == std::vector<std::string>{"a", "b", "c"});
}

TEST_CASE("model folder: a single file goes before an index") {
  const Folder folder;
  write_shards(folder);
  write_safetensors(folder / "model.safetensors", {{"a", {{1}, {5}}}});
  CHECK(open_model_folder(folder.path).parameters->read("a", 0, 0, 1) == std::vector<float>{5});
  std::filesystem::remove(folder / "model.safetensors");
  CHECK(open_model_folder(folder.path).parameters->read("a", 0, 0, 1) == std::vector<float>{1, 2, 3});
}

TEST_CASE("model folder: a symbolic link may lead out of the folder") {
  const Folder folder, blobs;
  write_shards(folder);
  std::filesystem::rename(folder / first, blobs / "5f1d");
  std::filesystem::create_symlink(blobs / "5f1d", folder / first);
  CHECK(open_model_folder(folder.path).parameters->read("a", 0, 0, 1) == std::vector<float>{1, 2, 3});
  std::filesystem::remove(blobs / "5f1d");
  check_tensor_refused(folder, folder / first, "cannot open: No such file or directory");
  std::filesystem::create_symlink("nowhere", folder / "model.safetensors");
  check_folder_refused(folder, folder / "model.safetensors", "cannot open: No such file or directory");
}

TEST_CASE("model folder: an index of a million names is read, and one of them twice is refused") {
  const Folder folder;
  save(folder, a_config, "config.json");
  write_safetensors(folder / first, {{"a", {{1}, {1}}}});
  std::string entries = in("a", first);
  for (int i = 0; i < 1'000'000; ++i) entries += "," + in("layers." + std::to_string(i) + ".weight", first);
  save(folder, index_of(entries), index_name);
  CHECK(open_model_folder(folder.path).parameters->read("a", 0, 0, 1) == std::vector<float>{1});
  save(folder, index_of(entries + "," + in("layers.500000.weight", first)), index_name);
  check_folder_refused(folder, folder / index_name,
                       "duplicate name, expected every name once, given \"layers.500000.weight\" twice");
}

TEST_CASE("model folder: a folder without its files is refused") {
  const Folder folder;
  check_folder_refused(folder, folder / "config.json", "cannot open: No such file or directory");
  save(folder, a_config, "config.json");
  check_folder_refused(
      folder, folder.path,
      "no parameters, expected model.safetensors or model.safetensors.index.json, given neither");
  const Folder empty;
  check_error([&] { open_model_folder(folder / "config.json"); }, Code::file,
              folder / "config.json/config.json", "Not a directory");
  check_error([&] { open_model_folder(empty / "none"); }, Code::file, empty / "none/config.json",
              "No such file");
}

TEST_CASE("model folder: a folder that cannot be read is refused") {
  const Folder folder;
  std::filesystem::create_directory(folder / "secret");
  save(folder, a_config, "secret/config.json");
  REQUIRE(chmod((folder / "secret").c_str(), 0) == 0);
  const AsNobody nobody(folder);
  check_error([&] { open_model_folder(folder / "secret"); }, Code::file, folder / "secret/config.json",
              "cannot open: Permission denied");
}

TEST_CASE(
    "model folder: what is no JSON object, or has a name twice, is refused as config.json and as index") {
  const std::vector<std::pair<std::string, std::string>> malformed = {
      {"", "malformed JSON, expected well-formed JSON, given parse error at line 1, column 1"},
      {"{\n\"a\":1", "at line 2, column 6"},
      {"{\"a\":\"\xff\"}", "invalid string: ill-formed UTF-8"},
      {"\xEF\xBB\xBF{}", "malformed JSON, expected '{', given a byte-order mark"},
      {"{}\0{"s, "malformed JSON at byte 2, expected well-formed JSON, given NUL"},
      {repeat("[", 1'000'000), "nested too deeply, expected at most 100 levels, given more"},
      {"{\"a\":" + repeat("[", 101) + repeat("]", 101) + "}", "nested too deeply"},
      {"{\"a\":[0" + repeat(",0", 5'000'000) + "]}", "too many values, expected at most 4194304, given more"},
      {"[]", "wrong kind of JSON, expected an object, given array"},
      {R"({"a":1,"b":2,"\u0061":3})", "duplicate name, expected every name once, given \"a\" twice"},
      {R"({"a":{"b":1,"b":2}})", "duplicate name, expected every name once, given \"b\" twice"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n", "a Git LFS pointer"},
  };
  for (const std::string& name : {"config.json"s, index_name})
    for (const auto& [text, reason] : malformed) {
      INFO(name << ": " << text.substr(0, 60));
      const Folder folder;
      write_shards(folder);
      check_folder_refused(folder, save(folder, text, name), reason);
    }
}

TEST_CASE("model folder: JSON that is nested deeply, or is no regular file, does no harm") {
  const Folder folder;
  write_shards(folder);
  save(folder, "{\"a\":" + repeat("[", 99) + repeat("]", 99) + "}", "config.json");
  CHECK(open_model_folder(folder.path).config.at("a") == repeat("[", 99) + repeat("]", 99));
  std::ofstream(folder / "config.json").seekp(1L << 40).put('}');
  check_folder_refused(folder, folder / "config.json", "too long, expected at most 268435456 bytes");
  std::filesystem::remove(folder / "config.json");
  REQUIRE(mkfifo((folder / "config.json").c_str(), 0600) == 0);
  check_folder_refused(folder, folder / "config.json", "not a file of bytes");
}

TEST_CASE("model folder: a long name that stands before many is refused before memory is full") {
  const Folder folder;
  write_shards(folder);
  std::string config = "{\"" + std::string(1'000'000, 'n') + "\":{\"0\":0";
  for (int i = 1; i < 1000; ++i) config += ",\"" + std::to_string(i) + "\":0";
  const std::size_t before = allocated::now;
  allocated::reset();
  check_folder_refused(folder, save(folder, config + "}}", "config.json"),
                       "names of hyper-parameters too long");
  CHECK(allocated::peak - before < 256 * mebibyte);
}

TEST_CASE("model folder: an index that is wrong about its files is refused") {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"{}", "no weight_map, expected an object of tensors and their files, given none"},
      {index_of("\"a\":1"), "tensor \"a\", expected the name of a file, given number"},
      {index_of(in("a", "../x.safetensors")), "expected a file in the folder, given \"../x.safetensors\""},
      {index_of(in("a", "x/../../y")), "expected a file in the folder, given \"x/../../y\""},
      {index_of(in("a", "..")), "tensor \"a\", expected a file in the folder, given \"..\""},
      {index_of(in("a", "/etc/passwd")), "expected a file in the folder, given \"/etc/passwd\""},
      {index_of(in("a", std::string(10'000'000, 'n'))), "a file in the folder, given \"nnnn"},
      {index_of(in("a", "")), "tensor \"a\", expected a file in the folder, given \"\""},
      {index_of(in("a", first + "\\u0000")), "tensor \"a\", expected a file in the folder"},
      {index_of(in("\\u001b[2J", "..")), "tensor \"\\x1b[2J\", expected a file in the folder"},
  };
  const Folder folder;
  write_shards(folder);
  for (const auto& [text, reason] : wrong) {
    INFO(text);
    check_folder_refused(folder, save(folder, text, index_name), reason);
  }
}

TEST_CASE(
    "model folder: a file that lacks a tensor, or is no file of tensors, is refused when it is asked for") {
  const Folder folder;
  write_shards(folder);
  const auto with_index = [&](const std::string& entries) { save(folder, index_of(entries), index_name); };
  with_index(in("a", second));
  check_tensor_refused(folder, folder / index_name,
                       "tensor \"a\", expected in " + folder / second + ", given none there");
  with_index(in("a", "none.safetensors"));
  check_tensor_refused(folder, folder / "none.safetensors", "cannot open: No such file or directory");
  with_index(in("a", "."));
  check_tensor_refused(folder, folder / ".", "not a file of bytes");
  with_index(in("a", first));
  save(folder, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n", first);
  check_tensor_refused(folder, folder / first, "a Git LFS pointer, not the file itself: git lfs pull");
  write_safetensors(folder / first, {{"a", {{2}, {NAN, 1}}}});
  const ForeignModel model = open_model_folder(folder.path);
  check_error([&] { model.parameters->read("a", 0, 0, 1); }, Code::not_finite, folder / first,
              "a: expected finite numbers, given nan at (0,)");
}
