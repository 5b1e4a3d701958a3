/// Checkpoints in files, as chapter 10's commands show and divide them; types of elements; folders that are
/// replaced as a whole.

#include <bit>
#include <numeric>

#include "10_checkpoints/commands.hpp"
#include "10_checkpoints/stored.hpp"
#include "engine/checkpoints/split.hpp"
#include "engine/files/folder_replacement.hpp"
#include "engine/files/model_folder.hpp"
#include "engine/files/safetensors/element_types.hpp"
#include "tests/files/safetensors_files.hpp"

using namespace shard;
using namespace shard::checkpoints;
using namespace shard::testing;

namespace {

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const std::byte*>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}

template <class To, class From>
To convert_one(From value, const char* from, const char* to, std::int64_t& overflows) {
  const std::vector<std::byte> result =
      safetensors::converted(bytes_of(std::vector<From>{value}), from, to, overflows);
  To out;
  REQUIRE(result.size() == sizeof out);
  std::memcpy(&out, result.data(), sizeof out);
  return out;
}

std::uint16_t half_of(double value) {
  std::int64_t ignored = 0;
  return convert_one<std::uint16_t>(value, "F64", "F16", ignored);
}
std::uint16_t bfloat16_of(double value) {
  std::int64_t ignored = 0;
  return convert_one<std::uint16_t>(value, "F64", "BF16", ignored);
}

/// Tensors of 4, 40, 8 and 12 bytes.
void write_model(const Folder& folder) {
  std::vector<float> many(10);
  std::iota(many.begin(), many.end(), 0.5F);
  write_safetensors(
      folder / "model.safetensors",
      {{"a", {{1}, {1}}}, {"b", {{5, 2}, many}}, {"c", {{2}, {2, 3}}}, {"d", {{3}, {4, 5, 6}}}});
}

using Files = std::vector<std::vector<std::string>>;

}  // namespace

TEST_CASE(
    "checkpoints: files are filled in order, and a tensor that is too large goes before the open file") {
  CHECK(split_by_size({}, 10) == Files{});
  CHECK(split_by_size({{"a", 4}, {"b", 6}}, 10) == Files{{"a", "b"}});
  CHECK(split_by_size({{"a", 4}, {"b", 7}}, 10) == Files{{"a"}, {"b"}});
  CHECK(split_by_size({{"a", 4}, {"large", 11}, {"b", 6}, {"c", 1}}, 10) ==
        Files{{"large"}, {"a", "b"}, {"c"}});
  CHECK(split_by_size({{"a", 6}, {"b", 6}, {"c", 4}}, 10) == Files{{"a"}, {"b", "c"}});
  CHECK(split_by_size({{"large", 11}}, 10) == Files{{"large"}});
  CHECK(shard_file_name("model", 0, 1) == "model.safetensors");
  CHECK(shard_file_name("model", 1, 12) == "model-00002-of-00012.safetensors");
  for (const char* name : {"model.safetensors", "model-00002-of-00012.safetensors", TensorIndex::file_name})
    CHECK(is_checkpoint_file(name));
  for (const char* name : {"model-2-of-3.safetensors", "other.safetensors", "model.safetensors.old"})
    CHECK_FALSE(is_checkpoint_file(name));
}

TEST_CASE(
    "checkpoints: tensors are sorted as transformers sorts them, whose Mixtral has two tensors of experts") {
  std::vector<NamedSize> tensors;
  const std::vector<std::string> sorted = {"head.weight",
                                           "layers.2.mlp.weight",
                                           "layers.10.block_sparse_moe.experts.2.w2.weight",
                                           "layers.10.block_sparse_moe.experts.10.w2.weight",
                                           "layers.10.block_sparse_moe.experts.0.w1.weight",
                                           "layers.10.block_sparse_moe.experts.1.w1.weight",
                                           "layers.10.block_sparse_moe.experts.0.w3.weight",
                                           "layers.10.block_sparse_moe.gate.weight",
                                           "layers.10.self_attn.weight",
                                           "part",
                                           "part2",
                                           "part10"};
  for (auto name = sorted.rbegin(); name != sorted.rend(); ++name) tensors.push_back({*name, 1});
  sort_for_files(tensors);
  CHECK(split_by_size(tensors, 100) == Files{sorted});
}

TEST_CASE("checkpoints: sizes with decimal and binary units, and no others") {
  CHECK(parse_size("--s", "2GB") == 2'000'000'000);
  CHECK(parse_size("--s", "1.5 kb") == 1500);
  CHECK(parse_size("--s", "64KiB") == 65536);
  CHECK(parse_size("--s", "17") == 17);
  for (const char* text : {"", "0", "0.5", "-1GB", "2G", "2GBs", "x", "1e3", "99999999TB", "1.GB"})
    CHECK_THROWS_WITH(parse_size("--s", text), contains("--s: expected a size"));
}

TEST_CASE("element types: each number of 16 bits comes back from a wider type") {
  for (const char* small : {"F16", "BF16"})
    for (const char* wide : {"F32", "F64"}) {
      std::vector<std::uint16_t> all;
      const auto infinity = static_cast<std::uint16_t>(std::string(small) == "F16" ? 0x7c00 : 0x7f80);
      for (int bits = 0; bits < 0x10000; ++bits)
        if ((bits & 0x7fff) <= infinity) all.push_back(static_cast<std::uint16_t>(bits));  // without NaN
      std::int64_t overflows = 0;
      const auto wider = safetensors::converted(bytes_of(all), small, wide, overflows);
      CHECK(safetensors::converted(wider, wide, small, overflows) == bytes_of(all));
      CHECK(overflows == 0);
    }
}

TEST_CASE("element types: values are rounded once, to the nearest, ties to even") {
  CHECK(half_of(65519.99) == 0x7bff);
  CHECK(half_of(65520) == 0x7c00);
  CHECK(half_of(-1e9) == 0xfc00);
  CHECK(half_of(std::ldexp(1, -24)) == 1);
  CHECK(half_of(std::ldexp(1, -25)) == 0);
  CHECK(half_of(std::ldexp(1.5, -25)) == 1);
  CHECK(half_of(-0.0) == 0x8000);
  CHECK(bfloat16_of(1 + std::ldexp(1, -8)) == 0x3f80);                       // a tie
  CHECK(bfloat16_of(1 + std::ldexp(1, -8) + std::ldexp(1, -40)) == 0x3f81);  // float32 would make it one
  CHECK(bfloat16_of(1 + std::ldexp(3, -8)) == 0x3f82);
  std::int64_t overflows = 0;
  CHECK(std::isnan(std::bit_cast<float>(convert_one<std::uint32_t>(std::nan(""), "F64", "F32", overflows))));
  convert_one<std::uint16_t>(std::nan(""), "F64", "F16", overflows);
  convert_one<std::uint16_t>(double{INFINITY}, "F64", "F16", overflows);
  CHECK(overflows == 0);
  convert_one<std::uint16_t>(70000.0, "F64", "F16", overflows);
  convert_one<float>(1e300, "F64", "F32", overflows);
  convert_one<std::uint16_t>(3.4e38F, "F32", "BF16", overflows);
  CHECK(overflows == 3);
}

TEST_CASE("checkpoints: divided anew and put together again, it is the same") {
  const Folder from, to;
  write_model(from);
  save(to, "{}", "config.json");
  save(to, "stale", "model-00009-of-00009.safetensors");
  CHECK(reshard(from.path, to.path, {"sharded", 20, std::nullopt}) == 0);
  CHECK(to.names() == std::vector<std::string>{Manifest::file_name, "config.json",
                                               "model-00001-of-00003.safetensors",
                                               "model-00002-of-00003.safetensors",
                                               "model-00003-of-00003.safetensors", TensorIndex::file_name});
  const StoredCheckpoint stored(to.path);
  CHECK(stored.problems().empty());
  CHECK(stored.tensors().at("b").parts[0].file == "model-00001-of-00003.safetensors");
  CHECK(stored.tensors().at("a").parts[0].file == stored.tensors().at("c").parts[0].file);
  CHECK(diff(from.path, to.path) == 0);
  CHECK(reshard(to.path, to.path, {"gathered", 0, std::nullopt}) == 0);  // reshards a folder in place
  CHECK(to.names() == std::vector<std::string>{Manifest::file_name, "config.json", "model.safetensors"});
  CHECK(contents(to / "model.safetensors") == contents(from / "model.safetensors"));
  CHECK(reshard(from.path, to.path, {"gathered", 0, "BF16"}) == 0);
  CHECK(StoredCheckpoint(to.path).tensors().at("d").bytes == 6);
  CHECK(diff(from.path, to.path) == 86);
}

TEST_CASE("a file that is written tensor by tensor is Hugging Face's, byte for byte") {
  const Folder folder;
  SafetensorsWriter writer(folder / "t", {{"a", "BF16", {3}}, {"b", "F32", {2}}, {"z", "I64", {1}}},
                           {{"format", "pt"}});
  REQUIRE(writer.order()[0].name == "z");
  const std::string data = "22 bytes of all tensors";
  writer.write(data.data(), 8);
  CHECK_THROWS_WITH(writer.commit(), contains("14 bytes are missing"));
  writer.write(data.data() + 8, 14);
  writer.commit();
  std::string header =
      R"({"__metadata__":{"format":"pt"},"z":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},)"
      R"("a":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  CHECK(contents(folder / "t") == file_of(header, data.substr(0, 22)));
}

TEST_CASE("checkpoints: what is missing or too much is named, and such a checkpoint is not divided") {
  const Folder from, to;
  write_model(from);
  reshard(from.path, to.path, {"sharded", 20, std::nullopt});
  std::string index = contents(to / TensorIndex::file_name);
  index.replace(index.find("\"c\": \"model-00002"), 17, "\"x\": \"model-00003");
  save(to, index, TensorIndex::file_name);
  write_safetensors(to / "model-00007-of-00009.safetensors", {});
  const StoredCheckpoint stored(to.path);
  REQUIRE(stored.problems().size() == 3);
  CHECK_THAT(stored.problems()[0], contains("tensor \"x\": missing: the index names model-00003-of-00003"));
  CHECK_THAT(stored.problems()[1], contains("tensor \"c\": too much: in model-00002-of-00003"));
  CHECK_THAT(stored.problems()[2], contains("model-00007-of-00009.safetensors: too much"));
  CHECK(show(to.path) == 65);
  const std::vector<std::string> before = to.names();
  const NewForm gathered = {"gathered", 0, std::nullopt};
  check_error([&] { reshard(to.path, to.path, gathered); }, Code::file, to.path, "missing");
  CHECK(to.names() == before);
}

TEST_CASE("checkpoints: numbers of few bits have scales, and are not left beside converted ones") {
  const Folder from, to;
  auto save_with = [&](const std::string& dtype, const std::string& config) {
    std::string header = R"({"w":{"dtype":")" + dtype + R"(","shape":[8],"data_offsets":[4,)" +
                         std::to_string(4 + 8 * safetensors::element_bytes(dtype)) +
                         R"(]},"w_scale_inv":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    save(from, file_of(header, std::string(4 + 8 * safetensors::element_bytes(dtype), '\1')),
         "model.safetensors");
    save(from, config, "config.json");
  };
  const NewForm to_bf16 = {"gathered", 0, "BF16"}, as_it_is = {"gathered", 0, std::nullopt};
  const std::string plain = R"({"torch_dtype":"float32"})";
  const std::string quantized = R"({"torch_dtype":"float32","quantization_config":{"bits":4}})";
  for (const auto& [dtype, config] : std::vector<std::pair<std::string, std::string>>{{"F8_E4M3", plain},
                                                                                      {"F8_E5M2", plain},
                                                                                      {"F8_E8M0", plain},
                                                                                      {"I8", plain},
                                                                                      {"U8", quantized},
                                                                                      {"I32", quantized}}) {
    CAPTURE(dtype);
    save_with(dtype, config);
    check_error([&] { reshard(from.path, to.path, to_bf16); }, Code::file, from.path,
                "--dtype: expected tensors of F64, F32, F16 or BF16 alone, given 1 tensor of " + dtype +
                    ", the first \"w\"");
    CHECK(to.names().empty());
    CHECK(reshard(from.path, to.path, as_it_is) == 0);
    CHECK(contents(to / "config.json") == config);
    std::filesystem::remove_all(to.path), std::filesystem::create_directory(to.path);
  }
  save_with("I64", plain);  // an index or a mask, which has no scale
  CHECK(reshard(from.path, to.path, to_bf16) == 0);
  CHECK(stored_types(to.path) == std::map<std::string, std::string>{{"w", "I64"}, {"w_scale_inv", "BF16"}});
}

TEST_CASE("checkpoints: every reader takes one file before an index, and says what a folder has instead") {
  const Folder from, both;
  write_model(from);
  reshard(from.path, both.path, {"sharded", 20, std::nullopt});
  write_safetensors(both / "model.safetensors", {{"alone", {{1}, {5}}}});
  save(both, "{}", "config.json");
  const std::vector<std::string> alone = {"alone"};
  CHECK(open_stored(both.path)->names() == alone);
  CHECK(open_model_folder(both.path).parameters->names() == alone);
  CHECK(stored_types(both.path).size() == 1);
  const StoredCheckpoint stored(both.path);
  CHECK(stored.tensors().size() == 1);
  REQUIRE_FALSE(stored.problems().empty());
  CHECK_THAT(stored.problems()[0],
             contains("too much: readers take model.safetensors alone, which is there"));
  const Folder other;
  save(other, "", "pytorch_model.bin");
  const std::string given = "given neither; there is pytorch_model.bin";
  check_error([&] { open_stored(other.path); }, Code::file, other.path, given);
  check_error([&] { StoredCheckpoint refused(other.path); }, Code::file, other.path, given);
}

TEST_CASE("checkpoints: a difference is told in units in the last place, with its first index") {
  const Folder one, other;
  const float next = std::nextafter(std::nextafter(4.0F, 5.0F), 5.0F);
  write_safetensors(one / "t", {{"w", {{2, 3}, {1, 2, 3, 4, 5, 6}}}, {"only", {{1}, {0}}}});
  write_safetensors(other / "t", {{"w", {{2, 3}, {1, 2, 3, next, 5, 6}}}});
  CHECK(diff(one / "t", other / "t") == 86);
  CHECK(diff(one / "t", one / "t") == 0);
}

namespace fs = std::filesystem;

TEST_CASE("a folder is replaced as a whole: old or new files, and the others stay") {
  const Folder parent;
  auto is_ours = [](const std::string& name) { return name.starts_with("ours"); };
  const std::string path = parent / "folder";
  {
    FolderReplacement first(path);
    save(parent, "new", first.folder().substr(parent.path.size() + 1) + "/ours-1");
    CHECK_FALSE(std::filesystem::exists(path));
    first.commit(is_ours);
  }
  save(parent, "theirs", "folder/config.json");
  std::filesystem::create_directory(path + "/sub");
  save(parent, "deep", "folder/sub/file");
  REQUIRE(::mkfifo((path + "/sub/pipe").c_str(), 0600) == 0);
  for (const std::string& folder : {path, path + "/sub"}) fs::permissions(folder, fs::perms::owner_all);
  const fs::file_time_type time = fs::last_write_time(path + "/sub");
  { const FolderReplacement never(path); }
  CHECK(contents(path + "/ours-1") == "new");
  {
    FolderReplacement second(path + "/");
    save(parent, "newer", second.folder().substr(parent.path.size() + 1) + "/ours-2");
    second.commit(is_ours);
  }
  CHECK_FALSE(std::filesystem::exists(path + "/ours-1"));
  CHECK(contents(path + "/ours-2") == "newer");
  CHECK(contents(path + "/config.json") == "theirs");
  CHECK(contents(path + "/sub/file") == "deep");
  CHECK(fs::is_fifo(path + "/sub/pipe"));
  for (const std::string& folder : {path, path + "/sub"})
    CHECK(fs::status(folder).permissions() == fs::perms::owner_all);
  CHECK(fs::last_write_time(path + "/sub") == time);
  CHECK(parent.names() == std::vector<std::string>{"folder"});
  std::string left_over, of_another;
  {
    const FolderReplacement one(path), same(path), another(parent / "another");
    left_over = one.folder(), of_another = another.folder();
    for (const FolderReplacement* alive : {&one, &same, &another}) CHECK(fs::exists(alive->folder()));
  }
  for (const std::string& folder : {left_over, of_another}) fs::create_directory(folder);  // killed runs
  {
    const FolderReplacement next(path);
    CHECK_FALSE(fs::exists(left_over));
    CHECK(fs::exists(of_another));
    CHECK(next.folder() != left_over);
  }
  for (int run = 0; run < 2; ++run) {  // a new folder inside the folder that it replaces
    FolderReplacement inside(path + "/new");
    inside.keep_others(path, is_ours);
    inside.commit(is_ours);
    CHECK(contents(path + "/new/sub/file") == "deep");
    CHECK_FALSE(fs::exists(path + "/new/new"));
  }
  save(parent, "a file", "file");
  check_error([&] { FolderReplacement refused(parent / "file"); }, Code::file, parent / "file",
              "cannot replace");
  for (const char* name : {".", "..", "/", ""})
    check_error([&] { FolderReplacement refused(name); }, Code::file, name, "the folder's own name");
  check_error([&] { FolderReplacement refused(parent / "no/where"); }, Code::file, parent / "no/where",
              "cannot make a folder beside it");
}
