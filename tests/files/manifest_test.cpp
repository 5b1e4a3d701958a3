/// The manifest of a checkpoint: written, read again, and refused when it is wrong.

#include "engine/checkpoints/manifest.hpp"

#include "engine/files/regular_file.hpp"
#include "tests/files/safetensors_files.hpp"

namespace shard::testing {

namespace {

const Ranges left_half = {{0, 3}, {0, 2}}, right_half = {{0, 3}, {2, 4}};

Manifest good_manifest() {
  Manifest manifest;
  manifest.format = "distributed";
  manifest.digests = {{"model-device-00001-of-00002.safetensors", "ab"}};
  manifest.tensors["w"] = {{3, 4}, {{"one", left_half}, {"other", right_half}}};
  manifest.network = NetworkRecord{"mlp", {{"--layers", "4"}}};
  manifest.training = TrainingRecord{7, {{"--seed", "18446744073709551615"}}};
  return manifest;
}

}  // namespace

TEST_CASE("manifest: parts tile a tensor if each element is in one of them") {
  CHECK(why_no_tiling({3, 4}, {left_half, right_half}) == "");
  CHECK(why_no_tiling({3, 4}, {{{0, 3}, {0, 4}}}) == "");
  CHECK(why_no_tiling({3, 4}, {right_half, {{0, 2}, {0, 2}}, {{2, 3}, {0, 2}}}) == "");
  CHECK(why_no_tiling({}, {{}}) == "");
  CHECK(why_no_tiling({3, 4}, {left_half}) == "6 of 12 elements");
  CHECK(why_no_tiling({3, 4}, {left_half, left_half}) == "(0-2, 0-1) and (0-2, 0-1), which overlap");
  CHECK(why_no_tiling({3, 4}, {left_half, {{0, 2}, {1, 4}}}) == "(0-2, 0-1) and (0-1, 1-3), which overlap");
  CHECK(why_no_tiling({3, 4}, {left_half, {{0, 3}, {2, 5}}}) == "the part (0-2, 2-4)");
  CHECK(why_no_tiling({3, 4}, {left_half, {{0, 3}}}) == "the part (0-2)");
  CHECK(why_no_tiling({0, 4}, {}) == "");
}

TEST_CASE("manifest: an older one has the network's options among those of the training") {
  const Manifest older = parse_manifest(
      R"({"format": "gathered", "digests": {}, "training": {"step": 2, "workload": "mixture",
          "options": {"--experts": "7", "--batch": "4", "--seed": "0"}}})",
      "older");
  REQUIRE(older.network);
  CHECK(older.network->workload == "mixture");
  CHECK(older.network->options == std::map<std::string, std::string>{{"--experts", "7"}, {"--top-k", "1"}});
  CHECK(older.training->step == 2);
  CHECK(older.training->options == std::map<std::string, std::string>{{"--batch", "4"}, {"--seed", "0"}});
}

TEST_CASE("manifest: each thing that can be wrong with it is told in one line") {
  const Folder folder;
  const std::string good = manifest_text(good_manifest());
  auto check_refused = [&](const std::string& text, const std::string& by, const std::string& reason) {
    CAPTURE(by);
    std::string wrong = good;
    REQUIRE(wrong.find(text) != std::string::npos);
    wrong.replace(wrong.find(text), text.size(), by);
    save(folder, wrong, Manifest::file_name);
    check_error([&] { read_manifest(folder.path); }, Code::file, folder / Manifest::file_name, reason);
  };
  check_refused("\"distributed\"", "7", "the manifest, expected string \"format\", given number");
  check_refused("distributed", "scattered", "expected gathered, sharded or distributed, given \"scattered\"");
  check_refused("\"digests\"", "\"digest\"", "expected object \"digests\", given none");
  check_refused("model-device", "../model", "file, expected one in the folder");
  check_refused("\"one\"", "\"/one\"", "file, expected one in the folder");
  check_refused("\"ab\"", "null", "the digest of model-device-00001-of-00002.safetensors, expected a text");
  check_refused("\"step\": 7", "\"step\": -7",
                "training, step, expected a whole number below 2^63, given -7");
  check_refused("\"step\": 7", "\"step\": 9223372036854775808",
                "training, step, expected a whole number below 2^63");
  check_refused("\"options\"", "\"option\"", "network, expected object \"options\", given none");
  check_refused("\"workload\"", "\"work\"", "network, expected string \"workload\", given none");
  check_refused("\"4\"", "4", "network, --layers, expected a text, given number");
  check_refused("\"parts\"", "\"part\"", "tensor \"w\", expected array \"parts\", given none");
  check_refused("\"shape\"", "\"form\"", "tensor \"w\", expected array \"shape\", given none");
  check_refused("\"tensors\"", "\"tensor\"", "expected object \"tensors\", given none");
}

TEST_CASE("manifest: a digest is what xxh128sum prints, in one piece or in several") {
  const Folder folder;
  save(folder, "abc", "file");
  CHECK(digest_of_file(folder / "file") == "06b05ab6733a618578af5f94892f3950");
  Digest digest;
  digest.add("a", 1);
  digest.add("bc", 2);
  CHECK(digest.text() == "06b05ab6733a618578af5f94892f3950");
  save(folder, "", "empty");
  CHECK(digest_of_file(folder / "empty") == "99aa06d3014798d86001c324468d497f");
}

}  // namespace shard::testing
