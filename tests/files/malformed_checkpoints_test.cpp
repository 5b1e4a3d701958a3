// Malformed checkpoints in several files, and the messages of chapter 10's commands about them.

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "10_checkpoints/commands.hpp"
#include "10_checkpoints/stored.hpp"
#include "engine/files/model_folder.hpp"
#include "tests/files/safetensors_files.hpp"

using namespace std::string_literals;
using namespace shard;
using namespace shard::checkpoints;
using namespace shard::testing;

namespace {

const std::string index_name = TensorIndex::file_name;
const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";

std::string in(const std::string& name, const std::string& file) {
  return "\"" + name + "\":\"" + file + "\"";
}
const std::string good_map = "\"weight_map\":{" + in("a", first) + "," + in("b", second) + "}";
std::string with_map(const std::string& entries) {
  return "{\"weight_map\":{" + entries + "}}";
}
std::string with_metadata(const std::string& metadata) {
  return "{\"metadata\":" + metadata + "," + good_map + "}";
}

/// Tensors `a` and `b`, each in its own file, without an index.
void write_parts(const Folder& folder) {
  write_safetensors(folder / first, {{"a", {{3}, {1, 2, 3}}}});
  write_safetensors(folder / second, {{"b", {{2}, {4, 5}}}});
}

int reshard_to(const std::string& from, const std::string& to) {
  return reshard(from, to, {"sharded", 8, std::nullopt});
}

/// Checks that show, diff and reshard refuse `folder` with this line, and that reshard leaves nothing behind.
void check_commands_refuse(const std::string& folder, const std::string& path, const std::string& reason) {
  const Folder to;
  write_safetensors(to / "good", {{"a", {{1}, {1}}}});
  const std::vector<std::function<void()>> commands = {
      [&] { show(folder); }, [&] { diff(folder, to / "good"); }, [&] { diff(to / "good", folder); },
      [&] { reshard_to(folder, to / "new"); }};
  for (const auto& command : commands) check_error(command, Code::file, path, reason);
  CHECK(to.names() == std::vector<std::string>{"good"});
}

/// Checks that show lists this problem, and that reshard refuses the folder because of it.
void check_problem(const Folder& folder, const std::string& problem) {
  const StoredCheckpoint stored(folder.path);
  REQUIRE_FALSE(stored.problems().empty());
  CHECK_THAT(stored.problems()[0], contains(problem));
  CHECK(show(folder.path) == 65);
  const Folder to;
  check_error([&] { reshard_to(folder.path, to / "new"); }, Code::file, folder.path, problem);
  CHECK(to.names().empty());
}

}  // namespace

// Indexes and files are read as elsewhere: model_folder_test.cpp and safetensors_malformed_test.cpp have their faults.
TEST_CASE("malformed checkpoints: commands refuse an index, and a file that it names, in the reader's line") {
  const Folder folder;
  write_parts(folder);
  check_commands_refuse(folder.path, save(folder, with_map("\"a\":{}"), index_name),
                        "tensor \"a\", expected the name of a file, given object");
  save(folder, with_map(in("a", first) + "," + in("b", "none.safetensors")), index_name);
  check_commands_refuse(folder.path, folder / "none.safetensors", "cannot open: No such file or directory");
}

TEST_CASE("malformed checkpoints: what index and files say differently is a problem with a name") {
  const Folder folder;
  write_parts(folder);
  const auto with = [&](const std::string& entries) { save(folder, with_map(entries), index_name); };
  with(in("a", second) + "," + in("b", first));
  check_problem(folder, "tensor \"a\": missing: the index names " + second + ", which does not have it");
  with(in("a", first) + "," + in("b", second) + "," + in("c", second));
  check_problem(folder, "tensor \"c\": missing: the index names " + second);
  with(in("a\\u0000", first) + "," + in("b", second));
  check_problem(folder, "tensor \"a\\x00\": missing");
  with(in("a", first));
  check_problem(folder, second + ": too much: the index does not name this file");
  with("");
  check_problem(folder, first + ": too much");
  with(in("a", first) + "," + in("b", second));
  write_safetensors(folder / second, {{"b", {{2}, {4, 5}}}, {"a", {{1}, {7}}}});
  check_problem(folder, "tensor \"a\": in two files, " + first + " and " + second);
  write_safetensors(folder / second, {{"b", {{2}, {4, 5}}}, {"c", {{1}, {7}}}});
  check_problem(folder, "tensor \"c\": too much: in " + second);
}

TEST_CASE("malformed checkpoints: what an index may say beside its table is read") {
  const Folder folder, to;
  write_parts(folder);
  for (const std::string metadata :
       {"{}", "null", "[]", "\"x\"", "1e300", R"({"total_size":19})", R"({"total_size":-1})",
        R"({"total_size":"x"})", R"({"total_size":20.0,"k":[{"l":null}]})"}) {
    INFO(metadata);
    save(folder, " \n" + with_metadata(metadata) + "\n\t ", index_name);
    CHECK(show(folder.path) == 0);
    CHECK(reshard(folder.path, to / "new", {"sharded", 12, std::nullopt}) == 0);
    CHECK(diff(folder.path, to / "new") == 0);
    CHECK_THAT(contents(to / ("new/" + index_name)), contains("\"total_size\": 20"));
  }
}

TEST_CASE("malformed checkpoints: paths that are no checkpoint are refused") {
  const Folder folder;
  check_commands_refuse(folder / "none", folder / "none", "cannot open: No such file or directory");
  check_commands_refuse(folder.path, folder.path, "no parameters, expected model.safetensors or");
  write_parts(folder);
  REQUIRE(symlink("nowhere", (folder / index_name).c_str()) == 0);
  check_commands_refuse(folder.path, folder / index_name, "cannot open: No such file or directory");
  const std::string secret = folder / "secret";
  REQUIRE(mkdir(secret.c_str(), 0) == 0);
  const AsNobody nobody(folder);
  check_error([&] { show(secret); }, Code::file, secret, "cannot list: Permission denied");
}

TEST_CASE("malformed checkpoints: other things in the folder that is replaced are kept, whatever they are") {
  const Folder from, to;
  write_parts(from);
  REQUIRE(mkfifo((to / "fifo").c_str(), 0600) == 0);
  REQUIRE(symlink("loop", (to / "loop").c_str()) == 0);
  REQUIRE(symlink("nowhere", (to / "link").c_str()) == 0);
  CHECK(reshard(from.path, to.path, {"gathered", 0, std::nullopt}) == 0);
  CHECK(to.names() ==
        std::vector<std::string>{Manifest::file_name, "fifo", "link", "loop", "model.safetensors"});
}

TEST_CASE("malformed checkpoints: a file that shrinks while it is read ends the command, and is said") {
  const Folder folder;
  write_parts(folder);
  const StoredCheckpoint stored(folder.path);
  const auto size = static_cast<off_t>(std::filesystem::file_size(folder / first));
  REQUIRE(truncate((folder / first).c_str(), size - 4) == 0);
  check_error([&] { stored.read("a", 0, 12); }, Code::file, folder / first,
              "the file shrank while it was read");
  CHECK(stored.read("b", 0, 8).size() == 8);
}

TEST_CASE("malformed checkpoints: a checkpoint of more files than a process may open at first is read") {
  const Folder folder;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(before.rlim_max > 200);
  std::string entries;
  for (int i = 0; i < 100; ++i) {
    const std::string name = std::to_string(i), file = "part-" + name + ".safetensors";
    write_safetensors(folder / file, {{name, {{1}, {1}}}});
    entries += (i > 0 ? "," : "") + in(name, file);
  }
  save(folder, with_map(entries), index_name);
  const rlimit few{90, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  CHECK(StoredCheckpoint(folder.path).tensors().size() == 100);
  CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}
