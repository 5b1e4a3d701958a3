// A safetensors file is written as a whole, or not at all.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstring>
#include <limits>

#include "tests/files/safetensors_files.hpp"

using namespace std::string_literals;
using namespace shard;
using namespace shard::testing;

TEST_CASE("safetensors: what is written is canonical, byte for byte") {
  const Folder folder;
  write_safetensors(folder / "t", {{"b\"\n", {{2}, {1, 2}}}, {"a", {{}, {3}}}});
  const std::string header = R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                             R"("b\"\n":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  CHECK(padded.size() > header.size());
  CHECK(contents(folder / "t") == file_of(padded, raw({3.0F, 1.0F, 2.0F})));
  write_safetensors(folder / "t", {});
  CHECK(contents(folder / "t") == file_of("{}      "));
  CHECK(folder.names() == std::vector<std::string>{"t"});
}

TEST_CASE("safetensors: what was written is read again") {
  const Folder folder;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::map<std::string, HostTensor> tensors = {
      {"layer_0/weights", {{2, 3}, {1, -2, 0.1F, HUGE_VALF, 1e-45F, 1e30F}}},
      {"empty", {{0, 5}, {}}},
      {"\xC3\xA9\x01\\", {{1, 1}, {nan}}},
      {"", {{1}, {-0.0F}}}};
  write_safetensors(folder / "t", tensors);
  const SafetensorsFile file(folder / "t");
  REQUIRE(file.entries().size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    INFO(name);
    CHECK(file.entries().at(name).shape == tensor.shape);
    const std::vector<float> values = file.read(name, all_of(tensor.shape));
    REQUIRE(values.size() == tensor.values.size());
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(same_bits(values[i], tensor.values[i]));
  }
}

TEST_CASE("safetensors: tensors that the format cannot hold are not written") {
  const Folder folder;
  const std::string path = folder / "t";
  const auto refused = [&](const std::string& name, const HostTensor& tensor, const std::string& reason) {
    check_error([&] { write_safetensors(path, {{name, tensor}}); }, Code::argument, path, reason);
  };
  refused("a", {{2}, {1}}, "tensor \"a\": expected as many values as shape [2] says, given 1");
  refused("a", {{}, {}}, "expected as many values as shape [] says, given 0");
  refused("a", {{-1}, {1}}, "shape [-1] says");
  refused("a", {{-1, -1}, {1}}, "shape [-1, -1] says");
  refused("a", {{1LL << 32, 1LL << 32}, {}}, "shape [4294967296, 4294967296] says");
  refused("a", {std::vector<std::int64_t>(65, 1), {1}}, "expected at most 64 dimensions, given 65");
  refused("__metadata__", {{1}, {1}}, "expected a name other than __metadata__");
  refused("a\0"s, {{1}, {1}}, "tensor \"a\\x00\": expected a name");
  refused("\xff", {{1}, {1}}, "expected a name in UTF-8");
  refused(std::string(mebibyte - 1, 'n'), {{1}, {1}}, "expected a name of at most 1048576 bytes");
  CHECK(folder.names().empty());
}

namespace {

/// While such an object lives, files of this process cannot grow beyond `bytes`, as on a full disk.
struct FullDisk {
  explicit FullDisk(rlim_t bytes) {
    handler = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit small{bytes, limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, handler);
  }
  rlimit limit{};
  sighandler_t handler;
};

const std::map<std::string, HostTensor> some_tensors = {{"a", {{1000}, std::vector<float>(1000, 1)}}};

}  // namespace

TEST_CASE("safetensors: a write that fails leaves the old file and nothing beside it") {
  const Folder folder;
  const std::string path = save(folder, "old");
  for (const rlim_t bytes : {0, 5, 8, 50, 4000}) {  // the write at the limit is short, and the next one fails
    INFO("disk full after " << bytes << " bytes");
    const auto write = [&] {
      const FullDisk disk(bytes);
      write_safetensors(path, some_tensors);
    };
    check_error(write, Code::file, path, "cannot write: File too large");
    CHECK(contents(path) == "old");
    CHECK(folder.names() == std::vector<std::string>{"t.safetensors"});
  }
}

TEST_CASE("files: a text takes the place of a file or of a link, and of nothing else") {
  const Folder folder;
  const std::string other = save(folder, "other", "other");
  REQUIRE(symlink(other.c_str(), (folder / "link").c_str()) == 0);
  for (const char* name : {"new", "link"}) {
    replace_file(folder / name, "text");
    CHECK(contents(folder / name) == "text");
  }
  CHECK(contents(other) == "other");
  CHECK(!std::filesystem::is_symlink(folder / "link"));
  REQUIRE(symlink("/dev/full", (folder / "device").c_str()) == 0);
  const auto refused = [&](const std::string& path) {
    check_error([&] { require_replaceable(path); }, Code::file, path, "expected a regular file or none");
    check_error([&] { replace_file(path, "text"); }, Code::file, path, "expected a regular file or none");
  };
  refused(folder / "device");
  refused("/dev/full");
  CHECK(std::filesystem::is_character_file("/dev/full"));
  require_replaceable(folder / "unused");
  CHECK(folder.names() == std::vector<std::string>{"device", "link", "new", "other"});
}

TEST_CASE("safetensors: places where no file can be written are refused") {
  const Folder folder;
  const auto refused = [&](const std::string& path, const std::string& reason) {
    check_error([&] { write_safetensors(path, some_tensors); }, Code::file, path, reason);
  };
  std::filesystem::create_directory(folder / "folder");
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  save(folder, "", "file");
  const std::vector<std::string> before = folder.names();
  refused(folder / "none/t", "cannot open the folder to write in: No such file or directory");
  refused(folder / "file/t", "cannot open the folder to write in: Not a directory");
  refused(folder / "folder", "cannot replace, expected a regular file or none");
  refused(folder / "folder/", "cannot replace");
  refused(folder / "fifo", "cannot replace");  // a special file such as /dev/null, which root could replace
  refused("", "cannot replace");
  refused(folder / std::string(300, 'n'), "cannot put the new file in place: File name too long");
  CHECK(folder.names() == before);
  CHECK(std::filesystem::is_fifo(folder / "fifo"));
  const AsNobody nobody(folder);
  refused(folder / "t", "cannot create a file in its folder: Permission denied");
}

namespace {

bool has_nameless_files = true;

}  // namespace

/// Replaces the C library's function in this program: a file system may have no unnamed files.
extern "C" int openat(int folder, const char* name, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : mode_t{0666};
  va_end(more);
  if (!has_nameless_files && (flags & O_TMPFILE) == O_TMPFILE) return errno = EOPNOTSUPP, -1;
  return static_cast<int>(syscall(SYS_openat, folder, name, flags, mode));
}

TEST_CASE("safetensors: what a killed run left behind is in nobody's way") {
  for (bool nameless : {true, false}) {
    const Folder folder;
    const std::string left = ".shardbook-" + std::to_string(getpid()) + "-0.tmp";
    save(folder, "left", left);
    has_nameless_files = nameless;
    write_safetensors(folder / "t", some_tensors);
    replace_file(folder / "u", "text");
    require_replaceable(folder / "v");
    has_nameless_files = true;
    CHECK(SafetensorsFile(folder / "t").entries().size() == 1);
    CHECK(contents(folder / "u") == "text");
    CHECK(contents(folder / left) == "left");
    CHECK(folder.names() == std::vector<std::string>{left, "t", "u"});
  }
}

TEST_CASE("files: until a new file is in its place, its folder does not show it") {
  const Folder folder;
  Replacement replacement(folder / "t");
  replacement.write("text", 4);
  CHECK(folder.names().empty());
  replacement.commit();
  CHECK(contents(folder / "t") == "text");
}

TEST_CASE("safetensors: a new file has the permissions that the user's mask leaves") {
  const Folder folder;
  const mode_t mask = umask(027);
  write_safetensors(folder / "t", {});
  umask(mask);
  struct stat status {};
  REQUIRE(stat((folder / "t").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0640);
}

namespace {

/// The target of each call of fsync, a regular file or a folder, and whether `watched` existed then.
struct Synced {
  bool is_folder;
  bool has_watched;
};
std::vector<Synced> synced;
std::string watched;

}  // namespace

/// Replaces the C library's function in this program.
extern "C" int fsync(int file) {
  struct stat status {};
  if (fstat(file, &status) == 0)
    synced.push_back({S_ISDIR(status.st_mode), std::filesystem::exists(watched)});
  return static_cast<int>(syscall(SYS_fsync, file));
}

TEST_CASE("safetensors: the new file is on the disk before it takes its place, and then its folder is") {
  const Folder folder;
  watched = folder / "t";
  synced.clear();
  write_safetensors(watched, some_tensors);
  REQUIRE(synced.size() == 2);
  CHECK((!synced[0].is_folder && !synced[0].has_watched));
  CHECK((synced[1].is_folder && synced[1].has_watched));
}

TEST_CASE("safetensors: white space and names are read up to their limits, and not above") {
  const Folder folder;
  auto spaced = [](std::size_t spaces) {
    return file_of("{" + std::string(spaces, ' ') + good + "}", "DATA");
  };
  auto named = [](std::size_t bytes) {
    return file_of("{\"" + std::string(bytes, 'n') + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                   "DATA");
  };
  CHECK(SafetensorsFile(save(folder, spaced(4096))).entries().size() == 1);
  check_refused(save(folder, spaced(4097)), "number or white space in the header too long");
  CHECK(SafetensorsFile(save(folder, named(1 << 20))).entries().size() == 1);
  check_refused(save(folder, named((1 << 20) + 1)), "string in the header too long");
}
