#pragma once

/// Makes safetensors files byte by byte, for tests of their readers and writers.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/device/error.hpp"
#include "engine/files/safetensors/safetensors.hpp"
#include "engine/files/safetensors/writer.hpp"
#include "tests/harness/catch.hpp"

/// Counts every allocation of this test program. So tests can check that sizes in a header do not lead to
/// allocations.
namespace allocated {
extern std::atomic<std::size_t> now, peak, largest;
void reset();
}  // namespace allocated

namespace shard::testing {

inline constexpr std::size_t mebibyte = 1 << 20;

/// The elements [begin, end) along an axis of a tensor.
inline std::vector<float> read_slice(const SafetensorsFile& file, const std::string& name, int axis,
                                     Index begin, Index end) {
  const auto entry = file.entries().find(name);
  return file.read(name,
                   entry == file.entries().end() ? Ranges() : along(entry->second.shape, axis, begin, end));
}

/// A folder that the destructor removes.
struct Folder {
  Folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& item : std::filesystem::directory_iterator(path))
      found.push_back(item.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }
  std::string path = (std::filesystem::temp_directory_path() / "safetensors-test-XXXXXX").string();
};

/// While such an object lives, a process of root has the rights of the user nobody, whom permission bits
/// stop. This user can look into the folder, and cannot write there.
class AsNobody {
 public:
  explicit AsNobody(const Folder& folder) : folder_(folder) {
    REQUIRE(chmod(folder_.path.c_str(), 0555) == 0);
    if (was_root_) REQUIRE(seteuid(65534) == 0);
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;
  ~AsNobody() {
    if (was_root_) CHECK(seteuid(0) == 0);
    CHECK(chmod(folder_.path.c_str(), 0700) == 0);
  }

 private:
  const Folder& folder_;
  bool was_root_ = geteuid() == 0;
};

template <class T>
inline std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

inline std::string length_field(std::uint64_t length) {
  return raw({length});
}

inline std::string file_of(const std::string& header, const std::string& data = "") {
  return length_field(header.size()) + header + data;
}

inline std::string repeat(const std::string& text, std::size_t times) {
  std::string result;
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
}

/// One tensor's member of a header; its parts are JSON texts.
inline std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                          const std::string& offsets) {
  return name + R"(:{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}
inline std::string a_tensor(const std::string& shape, const std::string& offsets) {
  return "{" + tensor(R"("a")", R"("F32")", shape, offsets) + "}";
}
inline std::string a_dtype(const std::string& dtype) {
  return "{" + tensor(R"("a")", dtype, "[1]", "[0,4]") + "}";
}
inline std::string floats(const std::string& name, const std::string& offsets) {
  return tensor(name, R"("F32")", "[1]", offsets);
}
inline const std::string good = floats(R"("a")", "[0,4]");

/// The header of two tensors of one float each, at these offsets.
inline std::string two(const std::string& a, const std::string& b) {
  return "{" + floats("\"a\"", a) + "," + floats("\"b\"", b) + "}";
}

inline std::string many_names(int count) {
  std::string header = "{";
  for (int i = 0; i < count; ++i)
    header +=
        (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  return header;
}

inline std::string save(const Folder& folder, const std::string& bytes,
                        const std::string& name = "t.safetensors") {
  std::ofstream(folder / name, std::ios::binary) << bytes;
  return folder / name;
}

inline std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Checks that `action` ends in `code`, with one printable line that names `path` and contains `reason`.
template <class Action>
inline void check_error(Action action, Code code, const std::string& path, const std::string& reason) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    INFO("message: " << message);
    CHECK(error.code() == code);
    const std::size_t start = message.find(path);
    REQUIRE(start != std::string::npos);
    CHECK(message.find(reason, start + path.size()) != std::string::npos);
    CHECK(message.size() - path.size() <= 300);
    CHECK(std::all_of(message.begin(), message.end(), [](char c) { return c >= ' ' && c <= '~'; }));
    return;
  }
  FAIL_CHECK("no error, where this was expected: " << reason);
}

/// Checks that opening is refused, without allocating more than the file's size and a fixed slack.
inline void check_refused(const std::string& path, const std::string& reason) {
  const std::size_t before = allocated::now;
  allocated::reset();
  check_error([&] { SafetensorsFile file(path); }, Code::file, path, reason);
  struct stat status {};
  const std::size_t size = stat(path.c_str(), &status) == 0 ? static_cast<std::size_t>(status.st_size) : 0;
  CHECK(allocated::largest <= size + mebibyte);
  CHECK(allocated::peak - before <= (size < mebibyte / 8 ? size + mebibyte : 8 * size));
}

inline bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace shard::testing
