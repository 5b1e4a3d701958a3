// What a safetensors file may be, what it may not be, and that writing one is all or nothing.

#include "engine/safetensors.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <new>
#include <numeric>
#include <random>
#include <string>

#include "engine/error.hpp"
#include "tests/catch.hpp"

using namespace std::string_literals;
using namespace shard;

// Every allocation of this program is counted, so that a header's lies can be seen not to be believed.
namespace allocated {
std::atomic<std::size_t> now{0}, peak{0}, largest{0};
void reset() {
  peak = now.load(), largest = 0;
}
}  // namespace allocated

// Not inlined: where the compiler sees malloc and delete, or new and free, it takes them for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  allocated::now += malloc_usable_size(memory);
  allocated::peak = std::max(allocated::peak.load(), allocated::now.load());
  allocated::largest = std::max(allocated::largest.load(), bytes);
  return memory;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept try {
  return operator new(bytes);
} catch (const std::bad_alloc&) {
  return nullptr;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  allocated::now -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}

namespace {

constexpr std::size_t mebibyte = 1 << 20;

/// A folder that is gone when the test is over.
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

template <class T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

std::string length_field(std::uint64_t length) {
  return raw({length});
}

std::string file_of(const std::string& header, const std::string& data = "") {
  return length_field(header.size()) + header + data;
}

std::string repeat(const std::string& text, std::size_t times) {
  std::string result;
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
}

/// One tensor inside a header; its parts are given as JSON.
std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return name + R"(:{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}
std::string a_tensor(const std::string& shape, const std::string& offsets) {
  return "{" + tensor(R"("a")", R"("F32")", shape, offsets) + "}";
}
std::string a_dtype(const std::string& dtype) {
  return "{" + tensor(R"("a")", dtype, "[1]", "[0,4]") + "}";
}
std::string floats(const std::string& name, const std::string& offsets) {
  return tensor(name, R"("F32")", "[1]", offsets);
}
const std::string good = floats(R"("a")", "[0,4]");

std::string many_names(int count) {
  std::string header = "{";
  for (int i = 0; i < count; ++i)
    header +=
        (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  return header;
}

std::string save(const Folder& folder, const std::string& bytes, const std::string& name = "t.safetensors") {
  std::ofstream(folder / name, std::ios::binary) << bytes;
  return folder / name;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// `action` must end in `code`, with one printable line that names `path` and gives `reason`.
template <class Action>
void check_error(Action action, Code code, const std::string& path, const std::string& reason) {
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

/// Opening must be refused, and must not allocate more than the file's size and a fixed slack.
void check_refused(const std::string& path, const std::string& reason) {
  const std::size_t before = allocated::now;
  allocated::reset();
  check_error([&] { SafetensorsFile file(path); }, Code::file, path, reason);
  struct stat status {};
  const std::size_t size = stat(path.c_str(), &status) == 0 ? static_cast<std::size_t>(status.st_size) : 0;
  CHECK(allocated::largest <= size + mebibyte);
  CHECK(allocated::peak - before <= (size < mebibyte / 8 ? size + mebibyte : 8 * size));
}

struct Malformed {
  const char* name;
  std::string bytes;
  std::string reason;
};

const std::string too_long = "bad header length, expected at most ";
const std::vector<Malformed> bad_lengths = {
    {"length 0", file_of("") + "x", "empty header"},
    {"length 1, a brace", file_of("{", "}"), "malformed JSON at byte "},
    {"length 1, something else", file_of("}"), "wrong start of the header"},
    {"length one too large", length_field(3) + "{}", too_long + "2 bytes, given 3"},
    {"length one too small", length_field(good.size() + 1) + "{" + good + "}DATA", "malformed JSON at byte "},
    {"length takes in the data", length_field(good.size() + 6) + "{" + good + "}DATA",
     "outside the file, expected at most 0"},
    {"length 2^32", length_field(1ULL << 32) + "{}", too_long + "2 bytes, given 4294967296"},
    {"length 2^63", length_field(1ULL << 63) + "{}", too_long + "2 bytes, given 9223372036854775808"},
    {"length 2^64-1", length_field(~0ULL) + "{}", too_long + "2 bytes, given 18446744073709551615"},
    {"length that wraps to 0", length_field(~0ULL - 7) + "{}", "given 18446744073709551608"},
    {"length that wraps to 2", length_field(~0ULL - 5) + "{}", "given 18446744073709551610"},
    {"big-endian length", "\0\0\0\0\0\0\0\2{}"s, too_long + "2 bytes, given 144115188075855872"},
    {"Git LFS pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n", too_long},
    {"pickle", "\x80\x02}q\0X\1\0\0\0aK\1s."s, too_long},
    {"zip archive", "PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0"s, too_long},
};

const std::string json = "malformed JSON at byte ";
const std::vector<Malformed> bad_json = {
    {"byte-order mark", file_of("\xEF\xBB\xBF{}"),
     "wrong start of the header, expected '{', given \"\\xef\""},
    {"leading space", file_of(" {}"), "wrong start of the header"},
    {"leading newline", file_of("\n{}"), "wrong start of the header"},
    {"array", file_of("[" + good + "]"), "wrong start of the header"},
    {"string", file_of("\"a\""), "wrong start of the header"},
    {"null", file_of("null"), "wrong start of the header"},
    {"no end", file_of("{" + good, "DATA"), json},
    {"ends in a string", file_of("{\"a"), "missing closing quote"},
    {"two objects", file_of("{}{}"), json},
    {"text after the object", file_of("{} x"), json},
    {"trailing comma", file_of("{" + good + ",}", "DATA"), json},
    {"no comma", file_of("{" + good + good + "}", "DATA"), json},
    {"comment", file_of("{/* */}"), json},
    {"single quotes", file_of("{'a':1}"), json},
    {"bare name", file_of("{a:1}"), json},
    {"NUL padding", file_of("{}\0\0\0\0\0\0"s), "NUL at byte 2 of the header"},
    {"NUL, then more", file_of("{}\0{\"b\":1}"s), "NUL at byte 2 of the header"},
    {"NUL in a name", file_of("{\"a\0b\":1}"s), "NUL at byte 3 of the header"},
    {"NUL in a name by an escape", file_of("{" + floats(R"("a\u0000b")", "[0,4]") + "}", "DATA"),
     "tensor \"a\\x00b\": NUL in the name"},
    {"newline in a name", file_of("{\"a\nb\":1}"), "control character"},
    {"bad UTF-8", file_of("{\"\xff\":1}"), "ill-formed UTF-8"},
    {"overlong UTF-8", file_of("{\"\xC0\x80\":1}"), "ill-formed UTF-8"},
    {"surrogate in UTF-8", file_of("{\"\xED\xA0\x80\":1}"), "ill-formed UTF-8"},
    {"cut UTF-8", file_of("{\"\xC3\":1}"), "ill-formed UTF-8"},
    {"lone upper surrogate", file_of(R"({"\ud800":1})"), "surrogate"},
    {"lone lower surrogate", file_of(R"({"\udc00":1})"), "surrogate"},
    {"unknown escape", file_of(R"({"\x41":1})"), json},
};

const std::vector<Malformed> bad_structure = {
    {"name twice", file_of("{" + good + "," + good + "}", "DATA"),
     "duplicate name, expected every name once"},
    {"name twice by an escape", file_of("{" + good + "," + floats(R"("\u0061")", "[4,8]") + "}", "DATADATA"),
     "duplicate name, expected every name once, given \"a\" twice"},
    {"field twice", file_of(R"({"a":{"dtype":"F32","dtype":"F32"}})"), "duplicate field"},
    {"field twice by an escape", file_of(R"({"a":{"dtype":"F32","dt\u0079pe":"F32"}})"), "duplicate field"},
    {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})"), "given \"__metadata__\" twice"},
    {"metadata twice by an escape", file_of(R"({"__metadata__":{},"__metadata\u005f_":{}})"),
     "duplicate name"},
    {"metadata key twice", file_of(R"({"__metadata__":{"k":"1","k":"2"}})"), "__metadata__: duplicate name"},
    {"metadata a string", file_of(R"({"__metadata__":"x"})"), "expected an object, given the string \"x\""},
    {"metadata null", file_of(R"({"__metadata__":null})"), "expected an object, given null"},
    {"metadata with a number", file_of(R"({"__metadata__":{"k":1}})"),
     "\"k\", expected a string, given the number 1"},
    {"metadata with null", file_of(R"({"__metadata__":{"k":null}})"), "\"k\", expected a string, given null"},
    {"metadata with an array", file_of(R"({"__metadata__":{"k":[]}})"),
     "\"k\", expected a string, given an array"},
    {"metadata with an object", file_of(R"({"__metadata__":{"k":{}}})"),
     "\"k\", expected a string, given an object"},
    {"tensor a number", file_of(R"({"a":7})"),
     "\"a\": wrong kind of value, expected an object, given the number 7"},
    {"tensor an array", file_of(R"({"a":[]})"), "wrong kind of value, expected an object, given an array"},
    {"tensor true", file_of(R"({"a":true})"), "wrong kind of value, expected an object, given true"},
    {"empty tensor", file_of(R"({"a":{}})"), "no dtype"},
    {"no dtype", file_of(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "DATA"), "no dtype"},
    {"no shape", file_of(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "DATA"), "no shape"},
    {"no offsets", file_of(R"({"a":{"dtype":"F32","shape":[1]}})", "DATA"), "no data_offsets"},
    {"extra field", file_of(R"({"a":{"dtype":"F32","strides":[1]}})"), "unknown field"},
    {"field in capitals", file_of(R"({"a":{"Dtype":"F32"}})"), "unknown field"},
    {"unknown dtype", file_of(a_dtype(R"("F31")"), "DATA"), "unknown dtype, expected one of the format's"},
    {"lower-case dtype", file_of(a_dtype(R"("f32")"), "DATA"), "such as F32, given f32"},
    {"empty dtype", file_of(a_dtype(R"("")"), "DATA"), "unknown dtype"},
    {"dtype with a space", file_of(a_dtype(R"("F32 ")"), "DATA"), "unknown dtype"},
    {"dtype a number", file_of(a_dtype("32"), "DATA"), "wrong kind of dtype, expected a string"},
    {"dtype an array", file_of(a_dtype("[]"), "DATA"),
     "wrong kind of dtype, expected a string, given an array"},
    {"terminal escape in a name", file_of(R"({"\u001b[2J\n":1})"), "tensor \"\\x1b[2J\\x0a\""},
};

const std::string digits = "bad number in shape, expected digits alone, at most 2^63-1, given ";
const std::vector<Malformed> bad_shapes = {
    {"shape a number", file_of(a_tensor("1", "[0,4]"), "DATA"), "wrong kind of shape, expected an array"},
    {"shape null", file_of(a_tensor("null", "[0,4]"), "DATA"),
     "wrong kind of shape, expected an array, given null"},
    {"shape with a string", file_of(a_tensor("[\"1\"]", "[0,4]"), "DATA"), digits + "the string \"1\""},
    {"shape in a shape", file_of(a_tensor("[[1]]", "[0,4]"), "DATA"), digits + "an array"},
    {"negative", file_of(a_tensor("[-1]", "[0,4]"), "DATA"), digits + "-1"},
    {"two negatives", file_of(a_tensor("[-1,-1]", "[0,4]"), "DATA"), digits + "-1"},
    {"minus zero", file_of(a_tensor("[-0]", "[0,0]")), digits + "-0"},
    {"fraction", file_of(a_tensor("[1.5]", "[0,4]"), "DATA"), digits + "1.5"},
    {"fraction of zero", file_of(a_tensor("[1.0]", "[0,4]"), "DATA"), digits + "1.0"},
    {"exponent", file_of(a_tensor("[1e0]", "[0,4]"), "DATA"), digits + "1e0"},
    {"infinite exponent", file_of(a_tensor("[1e999]", "[0,4]"), "DATA"), "number overflow"},
    {"leading zero", file_of(a_tensor("[01]", "[0,4]"), "DATA"), json},
    {"plus", file_of(a_tensor("[+1]", "[0,4]"), "DATA"), json},
    {"hexadecimal", file_of(a_tensor("[0x1]", "[0,4]"), "DATA"), json},
    {"not a number", file_of(a_tensor("[NaN]", "[0,4]"), "DATA"), json},
    {"dimension 2^63", file_of(a_tensor("[9223372036854775808]", "[0,4]"), "DATA"), "dimension too large"},
    {"dimension 2^64", file_of(a_tensor("[18446744073709551616]", "[0,4]"), "DATA"), digits},
    {"dimension 2^64+1", file_of(a_tensor("[18446744073709551617]", "[0,4]"), "DATA"), digits},
    {"product 2^64", file_of(a_tensor("[4294967296,4294967296]", "[0,0]")), "size overflows"},
    {"product 2^64+4", file_of(a_tensor("[274177,67280421310721]", "[0,4]"), "DATA"), "size overflows"},
    {"overflow by the dtype's size", file_of(a_tensor("[4611686018427387904]", "[0,0]")), "size overflows"},
    {"2^63 by the dtype's size", file_of(a_tensor("[2305843009213693952]", "[0,0]")), "size overflows"},
    {"zero beside 2^63", file_of(a_tensor("[0,9223372036854775808]", "[0,0]")), "dimension too large"},
    {"zero before an overflow", file_of(a_tensor("[0,4294967296,4294967296]", "[0,0]")), "size overflows"},
    {"zero after an overflow", file_of(a_tensor("[4294967296,4294967296,0]", "[0,0]")), "size overflows"},
    {"rank 65", file_of(a_tensor("[1" + repeat(",1", 64) + "]", "[0,4]"), "DATA"), "too many dimensions"},
    {"rank 10^4", file_of(a_tensor("[1" + repeat(",1", 9999) + "]", "[0,4]"), "DATA"), "too many dimensions"},
};

/// Two tensors of one float each, at these offsets.
std::string two(const std::string& a, const std::string& b) {
  return "{" + floats("\"a\"", a) + "," + floats("\"b\"", b) + "}";
}

std::string ten_on_one_span() {
  std::string header = "{" + good;
  for (char name = 'b'; name <= 'j'; ++name) header += "," + floats("\""s + name + "\"", "[0,4]");
  return header + "}";
}

const std::string misfit = "data_offsets do not fit shape and dtype, expected ";
const std::vector<Malformed> bad_offsets = {
    {"begin after end", file_of(a_tensor("[1]", "[4,0]"), "DATA"), "data_offsets in the wrong order"},
    {"no offsets inside", file_of(a_tensor("[1]", "[]"), "DATA"),
     "too few data_offsets, expected 2, given 0"},
    {"one offset", file_of(a_tensor("[1]", "[4]"), "DATA"), "too few data_offsets, expected 2, given 1"},
    {"three offsets", file_of(a_tensor("[1]", "[0,4,8]"), "DATA"), "too many data_offsets"},
    {"offsets a string", file_of(a_tensor("[1]", "\"0,4\""), "DATA"), "wrong kind of data_offsets"},
    {"offsets an object", file_of(a_tensor("[1]", "{}"), "DATA"),
     "wrong kind of data_offsets, expected an array"},
    {"negative offset", file_of(a_tensor("[1]", "[-4,0]"), "DATA"), "bad number in data_offsets"},
    {"fractional offset", file_of(a_tensor("[1]", "[0,4.0]"), "DATA"), "bad number in data_offsets"},
    {"offset with a leading zero", file_of(a_tensor("[1]", "[0,04]"), "DATA"), json},
    {"offset 2^64", file_of(a_tensor("[1]", "[0,18446744073709551616]"), "DATA"),
     "bad number in data_offsets"},
    {"offset 2^64-1", file_of(a_tensor("[1]", "[0,18446744073709551615]"), "DATA"), "outside the file"},
    {"span that wraps", file_of(a_tensor("[1]", "[18446744073709551612,0]"), "DATA"), "wrong order"},
    {"far outside", file_of(a_tensor("[1]", "[4294967296,4294967300]"), "DATA"), "outside the file"},
    {"a lie of 4 GiB", file_of(a_tensor("[1073741824]", "[0,4294967296]"), "DATA"), "outside the file"},
    {"one byte outside", file_of(a_tensor("[1]", "[1,5]"), "DATA"),
     "outside the file, expected at most 4 bytes"},
    {"no data", file_of("{" + good + "}"), "outside the file, expected at most 0 bytes"},
    {"size too small", file_of(a_tensor("[2]", "[0,4]"), "DATA"), misfit + "8 bytes, given 4 bytes"},
    {"size too large", file_of(a_tensor("[1]", "[0,8]"), "DATADATA"), misfit + "4 bytes, given 8 bytes"},
    {"size of a zero dimension", file_of(a_tensor("[0]", "[0,4]"), "DATA"),
     misfit + "0 bytes, given 4 bytes"},
    {"size of a scalar", file_of(a_tensor("[]", "[0,0]")), misfit + "4 bytes, given 0 bytes"},
    {"size by another dtype", file_of(a_dtype("\"F16\""), "DATA"), misfit + "2 bytes, given 4 bytes"},
    {"overlap", file_of(two("[0,4]", "[2,6]"), "DATADA"), "tensor \"b\": overlap with the tensor before"},
    {"overlap, out of order", file_of(two("[2,6]", "[0,4]"), "DATADA"), "tensor \"a\": overlap"},
    {"same span", file_of(two("[0,4]", "[0,4]"), "DATA"), "tensor \"b\": overlap"},
    {"ten tensors on one span", file_of(ten_on_one_span(), "DATA"), "tensor \"b\": overlap"},
    {"nothing inside another",
     file_of("{" + good + "," + tensor("\"b\"", "\"U8\"", "[0]", "[2,2]") + "}", "DATA"),
     "tensor \"b\": overlap"},
    {"hole at the start", file_of(a_tensor("[1]", "[4,8]"), "DATADATA"), "tensor \"a\": hole"},
    {"hole in the middle", file_of(two("[0,4]", "[5,9]"), "DATADATAD"), "tensor \"b\": hole"},
    {"hole, out of order", file_of(two("[5,9]", "[0,4]"), "DATADATAD"), "tensor \"a\": hole"},
    {"hole before nothing", file_of(a_tensor("[0]", "[4,4]"), "DATA"), "tensor \"a\": hole"},
    {"trailing byte", file_of("{" + good + "}", "DATA!"),
     "bytes after the last tensor, expected 4 bytes of data, given 5"},
    {"data without tensors", file_of("{}", "D"),
     "bytes after the last tensor, expected 0 bytes of data, given 1"},
};

void check_all_refused(const std::vector<Malformed>& cases) {
  const Folder folder;
  for (const Malformed& malformed : cases) {
    INFO("case: " << malformed.name);
    check_refused(save(folder, malformed.bytes), malformed.reason);
  }
}

}  // namespace

TEST_CASE("safetensors: bad header lengths are refused") {
  check_all_refused(bad_lengths);
}

TEST_CASE("safetensors: bad JSON is refused") {
  check_all_refused(bad_json);
}

TEST_CASE("safetensors: what is not a table of tensors is refused") {
  check_all_refused(bad_structure);
}

TEST_CASE("safetensors: bad shapes are refused") {
  check_all_refused(bad_shapes);
}

TEST_CASE("safetensors: bad offsets are refused") {
  check_all_refused(bad_offsets);
}

TEST_CASE("safetensors: large malformed headers are refused without large allocations") {
  const std::string names = many_names(1000000) + "," + floats("\"b\"", "[1,5]") + "}";
  check_all_refused({{"10^6 names and a hole", file_of(names, "?DATA"), "tensor \"b\": hole"}});
  const std::string quotes = "{\"" + repeat("\\\"", 5000000) + "\":1}";
  check_all_refused({
      {"name of 10 MB", file_of("{\"" + std::string(10000000, 'n') + "\":1}"),
       "string in the header too long"},
      {"name of 10 MB of escapes", file_of(quotes), "string in the header too long"},
      {"name of 1 MB", file_of("{\"" + std::string(1000000, 'n') + "\":1}"), "n...\": wrong kind of value"},
      {"number of 10 MB", file_of(a_tensor("[" + std::string(10000000, '1') + "]", "[0,4]")),
       "number or white"},
      {"10 MB of space", file_of("{" + std::string(10000000, '\n') + good + "}", "DATA"), "number or white"},
      {"10^6 offsets", file_of(a_tensor("[1]", "[0" + repeat(",0", 1000000) + "]")), "too many data_offsets"},
      {"objects 10^5 deep", file_of(repeat(R"({"a":)", 100000)), "tensor \"a\": unknown field"},
      {"arrays 10^5 deep", file_of(R"({"a":)" + repeat("[", 100000)), "wrong kind of value"},
      {"shapes 10^5 deep", file_of(R"({"a":{"shape":)" + repeat("[", 100000)), "bad number in shape"},
      {"metadata 10^5 deep", file_of(R"({"__metadata__":)" + repeat(R"({"a":)", 100000)),
       "__metadata__: wrong"},
  });
}

TEST_CASE("safetensors: a header beyond 100 MB is refused before it is read") {
  const Folder folder;
  const std::string path = save(folder, length_field(100000001) + "{}");
  REQUIRE(truncate(path.c_str(), 200000000) == 0);  // sparse: takes no room
  check_error([&] { SafetensorsFile file(path); }, Code::file, path, too_long + "100000000 bytes");
}

TEST_CASE("safetensors: a file cut at any byte is refused") {
  const Folder folder;
  const std::string whole = file_of(two("[0,4]", "[4,8]") + "  ", "DATADATA");
  SafetensorsFile accepted(save(folder, whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO("first " << size << " bytes");
    const std::size_t data = whole.size() - 8;
    const std::string reason = size < 8 ? "file too short" : size < data ? too_long : "outside the file";
    check_refused(save(folder, whole.substr(0, size)), reason);
  }
}

TEST_CASE("safetensors: a file with any byte changed is read or refused, never more") {
  const Folder folder;
  const std::string whole =
      file_of("{\"__metadata__\":{\"k\":\"v\"}," + two("[0,4]", "[4,8]").substr(1), "DATADATA");
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char c : "\xff\"{}[9-\\ "s + '\0') {
      std::string changed = whole;
      changed[at] = c;
      try {
        SafetensorsFile file(save(folder, changed));
      } catch (const Error& error) {
        CHECK(error.code() == Code::file);
        ++refused;
      }
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("safetensors: paths that are no regular file are refused") {
  const Folder folder;
  check_refused(folder / "none", "cannot open: No such file or directory");
  check_refused(folder.path, "not a file of bytes");
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  alarm(20);  // whoever waits for the FIFO's writer would wait for ever
  check_refused(folder / "fifo", "not a file of bytes");
  alarm(0);
  check_refused("/dev/zero", "not a file of bytes");
  REQUIRE(symlink("nowhere", (folder / "link").c_str()) == 0);
  check_refused(folder / "link", "cannot open: No such file or directory");
  REQUIRE(symlink("loop", (folder / "loop").c_str()) == 0);
  check_refused(folder / "loop", "cannot open: Too many levels of symbolic links");
  check_refused(save(folder, "", "file") + "/x", "cannot open: Not a directory");
  if (geteuid() == 0) return;  // permission bits do not stop root, so that there is nothing to see
  REQUIRE(chmod(save(folder, file_of("{}"), "secret").c_str(), 0) == 0);
  check_refused(folder / "secret", "cannot open: Permission denied");
}

TEST_CASE("safetensors: a line break in the path does not break the message's line") {
  try {
    SafetensorsFile file("/nowhere/a\nb\x1b[2J");
    FAIL("opened");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("/nowhere/a\\x0ab\\x1b[2J: cannot open") == 0);
  }
}

TEST_CASE("safetensors: a file that shrinks is read as far as it goes") {
  const Folder folder;
  write_safetensors(folder / "t", {{"a", {{4}, {1, 2, 3, 4}}}});
  const SafetensorsFile file(folder / "t");
  const auto size = std::filesystem::file_size(folder / "t");
  REQUIRE(truncate((folder / "t").c_str(), static_cast<off_t>(size - 8)) == 0);
  CHECK(file.read("a", 0, 0, 2) == std::vector<float>{1, 2});  // a slice needs no byte outside itself
  check_error([&] { file.read("a", 0, 1, 3); }, Code::file, folder / "t",
              "the file shrank while it was read");
}

TEST_CASE("safetensors: a slice that cannot be read is refused") {
  const Folder folder;
  const std::string path = save(folder, file_of("{" + tensor("\"f\"", "\"F32\"", "[2,3]", "[0,24]") + "," +
                                                    tensor("\"i\"", "\"I64\"", "[1]", "[24,32]") + "," +
                                                    tensor("\"s\"", "\"F16\"", "[]", "[32,34]") + "}",
                                                std::string(34, '\0')));
  const SafetensorsFile file(path);
  const auto refused = [&](const char* name, int axis, int begin, int end, Code code,
                           const std::string& reason) {
    check_error([&] { file.read(name, axis, begin, end); }, code, path, reason);
  };
  refused("g", 0, 0, 1, Code::file, "no tensor \"g\"");
  refused("i", 0, 0, 1, Code::file,
          "tensor \"i\": wrong dtype, expected F32, F64, F16 or BF16 to read as float32, given I64");
  refused("f", 2, 0, 1, Code::argument, "tensor \"f\": axis of a slice, expected 0 to 1, given 2");
  refused("f", -1, 0, 1, Code::argument, "given -1");
  refused("f", 0, -1, 1, Code::argument, "slice along axis 0, expected within 0 to 2, given -1 to 1");
  refused("f", 0, 2, 1, Code::argument, "given 2 to 1");
  refused("f", 1, 0, 4, Code::argument, "slice along axis 1, expected within 0 to 3, given 0 to 4");
  refused("s", 0, 0, 2, Code::argument, "expected within 0 to 1, given 0 to 2");
}

TEST_CASE("safetensors: unusual files that are legal are read") {
  const Folder folder;
  const std::vector<std::pair<std::string, std::size_t>> files = {
      {file_of("{}"), 0},
      {file_of("{}      "), 0},
      {file_of("{} \n\t\r"), 0},
      {file_of("{}" + std::string(1000000, ' ')), 0},
      {file_of("{ \"__metadata__\" : { } }"), 0},
      {file_of("{\n  " + good + "\n}", "DATA"), 1},
      {file_of(two("[4,8]", "[0,4]"), "DATADATA"), 2},
      {file_of(a_tensor("[0]", "[0,0]")), 1},
      {file_of(a_tensor("[3,0,2]", "[0,0]")), 1},
      {file_of(a_tensor("[]", "[0,4]"), "DATA"), 1},
      {file_of(a_tensor("[1" + repeat(",1", 63) + "]", "[0,4]"), "DATA"), 1},
      {file_of("{" + floats("\"\"", "[0,4]") + "}", "DATA"), 1},
      {file_of("{" + floats(R"("\ud83d\ude00\n\"")", "[0,4]") + "}", "DATA"), 1},
      {file_of("{" + good + "," + tensor("\"b\"", "\"U8\"", "[0]", "[4,4]") + "}", "DATA"), 2},
      {file_of("{" + good + "," + tensor("\"b\"", "\"U8\"", "[0]", "[0,0]") + "}", "DATA"), 2},
      {file_of("{" + tensor("\"b\"", "\"BOOL\"", "[1]", "[0,1]") + "," + floats("\"a\"", "[1,5]") + "}",
               "1DATA"),
       2},
      {file_of(many_names(10000) + "}"), 10000},
  };
  for (const auto& [bytes, count] : files) {
    INFO("header: " << bytes.substr(8, 200));
    CHECK(SafetensorsFile(save(folder, bytes)).entries().size() == count);
  }
}

TEST_CASE("safetensors: the header's entries are given as they are") {
  const Folder folder;
  const std::string path =
      save(folder, file_of(R"({"__metadata__":{"by":"\u0061","to":""},)" +
                               tensor(R"("\u0062")", "\"BF16\"", "[2,1]", "[4,8]") + "," + good + "}",
                           "DATADATA"));
  SafetensorsFile opened(path);
  const SafetensorsFile file = std::move(opened);
  CHECK(file.path() == path);
  CHECK(file.metadata() == std::map<std::string, std::string>{{"by", "a"}, {"to", ""}});
  REQUIRE(file.entries().count("b") == 1);
  const SafetensorsEntry& entry = file.entries().at("b");
  CHECK(entry.dtype == "BF16");
  CHECK(entry.shape == std::vector<std::int64_t>{2, 1});
  CHECK(entry.begin == 4);
  CHECK(entry.end == 8);
  CHECK(file.read("a", 0, 0, 1).size() == 1);
}

TEST_CASE("safetensors: every dtype has its size") {
  const Folder folder;
  const std::vector<std::pair<std::string, int>> dtypes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
      {"F32", 4},  {"I64", 8}, {"U64", 8}, {"F64", 8},     {"C64", 8}};
  for (const auto& [dtype, bytes] : dtypes) {
    INFO(dtype);
    const std::string span = "[0," + std::to_string(3 * bytes) + "]";
    const std::string header = "{" + tensor("\"a\"", '"' + dtype + '"', "[3]", span) + "}";
    CHECK(SafetensorsFile(save(folder, file_of(header, std::string(3 * bytes, 'x')))).entries().size() == 1);
  }
}

namespace {

/// Element i of a tensor under test. Exact in every float dtype but BF16 and F16, for which i is kept small.
template <class Element>
std::string numbered(std::size_t count) {
  std::vector<Element> values(count);
  std::iota(values.begin(), values.end(), Element{0});
  return {reinterpret_cast<const char*>(values.data()), count * sizeof(Element)};
}

/// The slice of a tensor of shape (outer, length, inner) whose element i is i.
std::vector<float> numbered_slice(std::size_t outer, std::size_t length, std::size_t inner, std::size_t begin,
                                  std::size_t end) {
  std::vector<float> values;
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t i = begin * inner; i < end * inner; ++i)
      values.push_back(static_cast<float>(o * length * inner + i));
  return values;
}

std::string rank3(const char* dtype, int bytes, std::size_t a, std::size_t b, std::size_t c) {
  const auto text = [](std::size_t number) { return std::to_string(number); };
  return "{" +
         tensor("\"a\"", dtype, "[" + text(a) + "," + text(b) + "," + text(c) + "]",
                "[0," + text(a * b * c * bytes) + "]") +
         "}";
}

}  // namespace

TEST_CASE("safetensors: every slice along every axis of a tensor of rank 3") {
  const Folder folder;
  const SafetensorsFile single(
      save(folder, file_of(rank3("\"F32\"", 4, 3, 4, 5), numbered<float>(60)), "32"));
  const SafetensorsFile twice(
      save(folder, file_of(rank3("\"F64\"", 8, 3, 4, 5), numbered<double>(60)), "64"));
  const std::size_t sizes[] = {1, 3, 4, 5, 1};
  for (int axis = 0; axis < 3; ++axis) {
    const std::size_t outer = axis == 0 ? 1 : axis == 1 ? 3 : 12;
    const std::size_t inner = axis == 0 ? 20 : axis == 1 ? 5 : 1;
    const std::size_t length = sizes[axis + 1];
    for (std::size_t begin = 0; begin <= length; ++begin) {
      for (std::size_t end = begin; end <= length; ++end) {
        INFO("axis " << axis << ", " << begin << " to " << end);
        const std::vector<float> expected = numbered_slice(outer, length, inner, begin, end);
        const auto from = static_cast<std::int64_t>(begin), to = static_cast<std::int64_t>(end);
        CHECK(single.read("a", axis, from, to) == expected);
        CHECK(twice.read("a", axis, from, to) == expected);
      }
    }
  }
}

TEST_CASE("safetensors: slices larger than the window, in few and many runs, within a bound of memory") {
  const Folder folder;
  struct Slice {
    std::size_t outer, length, inner, begin, end;
  };
  for (const Slice& s : {Slice{700, 3, 300, 1, 2},           // many short runs, read through the gaps
                         Slice{5, 3000, 20, 10, 20},         // few short runs, far apart
                         Slice{2, 3, 140000, 1, 3},          // runs beyond the window
                         Slice{1, 400000, 1, 1, 399999}}) {  // one run
    INFO(s.outer << " x " << s.length << " x " << s.inner);
    const std::size_t count = s.outer * s.length * s.inner;
    for (const bool is_double : {false, true}) {
      const std::string header =
          rank3(is_double ? "\"F64\"" : "\"F32\"", is_double ? 8 : 4, s.outer, s.length, s.inner);
      const SafetensorsFile file(
          save(folder, file_of(header, is_double ? numbered<double>(count) : numbered<float>(count))));
      const std::size_t before = allocated::now;
      allocated::reset();
      const std::vector<float> values =
          file.read("a", 1, static_cast<std::int64_t>(s.begin), static_cast<std::int64_t>(s.end));
      CHECK(allocated::peak - before <= values.size() * sizeof(float) + mebibyte + 65536);
      CHECK(
          (values == numbered_slice(s.outer, s.length, s.inner, s.begin, s.end)));  // too long to be printed
    }
  }
}

TEST_CASE("safetensors: empty tensors and scalars are read") {
  const Folder folder;
  write_safetensors(folder / "t", {{"none", {{2, 0, 3}, {}}}, {"one", {{}, {7}}}});
  const SafetensorsFile file(folder / "t");
  CHECK(file.read("none", 0, 0, 2).empty());
  CHECK(file.read("none", 1, 0, 0).empty());
  CHECK(file.read("none", 2, 1, 3).empty());
  CHECK(file.entries().at("one").shape.empty());
  CHECK(file.read("one", 0, 0, 1) == std::vector<float>{7});
  CHECK(file.read("one", 0, 1, 1).empty());
}

namespace {

std::vector<float> read_as(const char* dtype, int bytes, const std::string& data) {
  const Folder folder;
  const std::size_t count = data.size() / static_cast<std::size_t>(bytes);
  const SafetensorsFile file(save(folder, file_of(rank3(dtype, bytes, 1, 1, count), data)));
  return file.read("a", 2, 0, static_cast<std::int64_t>(count));
}

bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

TEST_CASE("safetensors: all 65536 values of F16 and of BF16") {
  const std::vector<float> halves = read_as("\"F16\"", 2, numbered<std::uint16_t>(65536));
  const std::vector<float> brains = read_as("\"BF16\"", 2, numbered<std::uint16_t>(65536));
  int wrong_halves = 0;
  int wrong_brains = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    // The definition: (-1)^sign 2^(exponent-15) 1.fraction, with exponents 0 and 31 apart.
    const double sign = bits >= 0x8000 ? -1 : 1;
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double fraction = (bits & 1023) / 1024.0;
    const double value = exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
    const float half = halves[bits];
    if (exponent < 31) wrong_halves += !same_bits(half, static_cast<float>(sign * value));
    if (exponent == 31 && fraction == 0)
      wrong_halves += half != sign * std::numeric_limits<float>::infinity();
    if (exponent == 31 && fraction != 0)
      wrong_halves += !std::isnan(half) || std::signbit(half) != (sign < 0);
    std::uint32_t brain = 0;
    std::memcpy(&brain, &brains[bits], sizeof brain);
    wrong_brains += brain != bits << 16;
  }
  CHECK(wrong_halves == 0);
  CHECK(wrong_brains == 0);
  CHECK(same_bits(halves[0x0001], 0x1p-24F));  // the smallest subnormal
  CHECK(halves[0x7bff] == 65504.0F);
  CHECK(same_bits(brains[0x0001], 0x1p-133F));
}

TEST_CASE("safetensors: F64 is rounded to the nearest float32") {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::string data =
      raw({1.0, -0.0, 0.1, 1 + 0x1p-25, 0x1p-149, 0x1p-151, 1e300, -infinity, infinity - infinity});
  const std::vector<float> values = read_as("\"F64\"", 8, data);
  const float expected[] = {1.0F, -0.0F, 0.1F, 1.0F, 0x1p-149F, 0.0F, HUGE_VALF, -HUGE_VALF};
  for (std::size_t i = 0; i < std::size(expected); ++i) CHECK(same_bits(values[i], expected[i]));
  CHECK(std::isnan(values[8]));
}

TEST_CASE("safetensors: F32 passes bit by bit") {
  const std::string bits =
      raw<std::uint32_t>({0, 0x80000000, 1, 0x007fffff, 0x7f800000, 0xff800000, 0x7fc12345, 0x7fa00001});
  const std::vector<float> values = read_as("\"F32\"", 4, bits);
  CHECK(std::memcmp(values.data(), bits.data(), bits.size()) == 0);
}

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
    const std::vector<float> values = file.read(name, 0, 0, tensor.shape[0]);
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
  refused(std::string(mebibyte, 'n'), {{1}, {1}}, "expected a name of at most 1048576 bytes");
  CHECK(folder.names().empty());
}

namespace {

/// Files of this process end at `bytes`, as on a full disk, until this goes out of scope.
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
  for (const rlim_t bytes :
       {0, 5, 8, 50, 4000}) {  // the write that meets the end is short, the next one fails
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
  refused(folder / "fifo", "cannot replace");  // as /dev/null, which root could replace
  refused("", "cannot replace");
  refused(folder / std::string(300, 'n'), "cannot put the new file in place: File name too long");
  CHECK(folder.names() == before);
  CHECK(std::filesystem::is_fifo(folder / "fifo"));
  if (geteuid() == 0) return;  // permission bits do not stop root, so that there is nothing to see
  REQUIRE(chmod((folder / "folder").c_str(), 0500) == 0);
  refused(folder / "folder/t", "cannot create a file in its folder: Permission denied");
}

TEST_CASE("safetensors: what a killed run left behind is in nobody's way") {
  const Folder folder;
  const std::string left = ".safetensors-" + std::to_string(getpid()) + "-0.tmp";
  save(folder, "left", left);
  write_safetensors(folder / "t", some_tensors);
  CHECK(SafetensorsFile(folder / "t").entries().size() == 1);
  CHECK(contents(folder / left) == "left");
  CHECK(folder.names() == std::vector<std::string>{left, "t"});
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

constexpr std::int64_t many = 200000;

std::map<std::string, HostTensor> all_equal(float value) {
  return {{"a", {{many}, std::vector<float>(many, value)}}};
}

/// What all values of the file are. NaN where they differ: it was neither the old file nor the new one.
float value_of(const std::string& path) {
  const std::vector<float> values = SafetensorsFile(path).read("a", 0, 0, many);
  const bool is_whole = std::all_of(values.begin(), values.end(), [&](float v) { return v == values[0]; });
  return is_whole ? values[0] : std::numeric_limits<float>::quiet_NaN();
}

[[noreturn]] void rewrite_for_ever(const std::string& path) {
  alarm(60);  // or until the parent is long gone
  try {
    for (int i = 1;; ++i) write_safetensors(path, all_equal(static_cast<float>(i)));
  } catch (...) {
    _exit(1);
  }
}

}  // namespace

TEST_CASE("safetensors: whoever is killed while writing leaves the old file or the new one") {
  const Folder folder;
  const std::string path = folder / "t";
  std::mt19937 random(1);
  int rewritten = 0;
  for (int round = 0; round < 40; ++round) {
    write_safetensors(path, all_equal(0));
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) rewrite_for_ever(path);
    usleep(random() % 20000);
    CHECK(value_of(path) >= 0);  // while it is being rewritten
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    const float value = value_of(path);
    CHECK(value >= 0);
    rewritten += value > 0;
  }
  CHECK(rewritten > 0);
}
