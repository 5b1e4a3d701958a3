// The config.json of another library's network: the values read, and the messages about errors.

#include "engine/workloads/decoder/foreign_config.hpp"

#include "engine/weights/checkpoint.hpp"
#include "tests/files/safetensors_files.hpp"

using namespace shard;
using namespace shard::testing;

namespace {

ForeignModel with(const std::map<std::string, std::string>& config) {
  return {"tiny", config, host_checkpoint({{"w", {{2, 3}, std::vector<float>(6)}}}, "tiny")};
}

/// The whole message of an error in a file.
template <class Action>
void check_line(const std::string& line, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.code() == Code::file);
    CHECK(error.what() == line);
    return;
  }
  FAIL("expected an error: " << line);
}

}  // namespace

TEST_CASE("config.json: a number is read whole, or is the family's own where the file says nothing") {
  const ForeignModel model = with({{"width", "12"}, {"none", "null"}, {"share", "0.25"}, {"tiny", "1e-06"}});
  ForeignConfig config(model);
  CHECK(config.count("width", 5) == 12);
  CHECK(config.count("height", 5) == 5);
  CHECK(config.count("none", 5) == 5);
  CHECK(config.number("share", 1.0, 0.0) == 0.25);
  CHECK(config.number("tiny", 1.0, 0.0) == 1e-6);
  CHECK(config.number<Index>("width", 5, 12) == 12);
}

TEST_CASE("config.json: what is no number, or too small, is refused in one line") {
  for (const char* given : {"0", "-3", "7.5", "12x", "x", " 12", "99999999999999999999", "true", "list"})
    check_line(fmt::format("tiny: config.json: width: expected a number of 1 or more, given {}", given), [&] {
      const ForeignModel model = with({{"width", given}});
      ForeignConfig(model).count("width", 5);
    });
  for (const char* given : {"nan", "-0.5", "0.5.5", "1e999"})
    check_line(fmt::format("tiny: config.json: share: expected a number of 0 or more, given {}", given), [&] {
      const ForeignModel model = with({{"share", given}});
      ForeignConfig(model).number("share", 1.0, 0.0);
    });
}

TEST_CASE("config.json: text may be missing, null, or required to be one") {
  const ForeignModel model = with({{"act", "relu"}, {"none", "null"}});
  ForeignConfig config(model);
  CHECK(config.text("act", "silu") == "relu");
  CHECK(config.text("none", "silu") == "silu");
  CHECK(config.text("other", "silu") == "silu");
  CHECK(config.is_null("none"));
  CHECK_FALSE(config.is_null("act"));
  CHECK_FALSE(config.is_null("other"));
  config.require("act", "relu");
  config.require("none", "silu");
  config.require("other", "silu");
  check_line("tiny: config.json: act: expected silu, given relu", [&] { config.require("act", "silu"); });
}

TEST_CASE("config.json: a family is one of those that are read, or the line names who reads it") {
  auto family = [](const std::map<std::string, std::string>& config) {
    const ForeignModel model = with(config);
    return ForeignConfig(model).require_family({"mistral", "mixtral"});
  };
  CHECK(family({{"model_type", "mixtral"}}) == "mixtral");
  const std::string line = "tiny: config.json: model_type: expected mistral or mixtral, given ";
  check_line(line + "none", [&] { family({}); });
  check_line(line + "gemma", [&] { family({{"model_type", "gemma"}}); });
  check_line(line + "t5, which the variants t5-... read", [&] { family({{"model_type", "t5"}}); });
  check_line("tiny: config.json: model_type: expected t5, given mixtral, which the variants without t5- read",
             [&] {
               const ForeignModel model = with({{"model_type", "mixtral"}});
               ForeignConfig(model).require_family({"t5"});
             });
}

TEST_CASE("config.json: what nobody has asked for must be harmless or null") {
  const ForeignModel model = with({{"width", "12"},
                                   {"unknown", "null"},
                                   {"use_cache", "true"},
                                   {"id2label.0", "good"},
                                   {"label2id.good", "0"},
                                   {"task_specific_params.summarization.prefix", "summarize: "}});
  ForeignConfig config(model);
  check_line(
      "tiny: config.json: width: expected no hyper-parameter that this program does not know, given 12",
      [&] { config.require_known(); });
  config.count("width", 5);
  config.require_known();
}

TEST_CASE("config.json: names and values of a file are shown printable, and short") {
  const ForeignModel model = with({{"a\nb", std::string(500, 'x')}});
  check_error([&] { ForeignConfig(model).require_known(); }, Code::file, "tiny", "a\\x0ab: expected no");
}

TEST_CASE("config.json: shapes of parameters are those that it says, some of them turned") {
  const ForeignModel model = with({});
  auto require = [](const ForeignModel& of, const std::vector<Parameter>& all, const ForeignNames& names) {
    require_tensors(of, all, names, [](const std::string&) { return false; });
  };
  require(model, {{"ours", {2, 3}}}, {{"ours", {"w", false}}});
  require(model, {{"ours", {3, 2}}}, {{"ours", {"w", true}}});
  check_line("tiny: w: expected (3, 2), which config.json says, given (2, 3)", [&] {
    require(model, {{"ours", {3, 2}}}, {{"ours", {"w", false}}});
  });
  check_line("tiny: w: expected (3, 2), which config.json says, given (2, 3)", [&] {
    require(model, {{"ours", {2, 3}}}, {{"ours", {"w", true}}});
  });
  check_line("tiny: expected a parameter v, given none of that name", [&] {
    require(model, {{"ours", {2, 3}}}, {{"ours", {"v", false}}});
  });
}
