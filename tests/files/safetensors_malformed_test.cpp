// Malformed safetensors files, and the errors that name their faults.

#include <sys/stat.h>
#include <unistd.h>

#include "10_checkpoints/stored.hpp"
#include "tests/files/safetensors_files.hpp"

using namespace std::string_literals;
using namespace shard;
using namespace shard::testing;

namespace {

struct Malformed {
  const char* name;
  std::string bytes;
  std::string reason;
};

const std::string too_long = "bad header length, expected at most ";
const std::vector<Malformed> bad_lengths = {
    {"length 0", file_of("") + "x", "empty header"},
    {"length 1, something else", file_of("}"), "wrong start of the header"},
    {"length one too large", length_field(3) + "{}", too_long + "2 bytes, given 3"},
    {"length takes in the data", length_field(good.size() + 6) + "{" + good + "}DATA",
     "outside the file, expected at most 0"},
    {"length 2^32", length_field(1ULL << 32) + "{}", too_long + "2 bytes, given 4294967296"},
    {"length 2^64-1", length_field(~0ULL) + "{}", too_long + "2 bytes, given 18446744073709551615"},
    {"length that wraps to 2", length_field(~0ULL - 5) + "{}", "given 18446744073709551610"},
    {"big-endian length", "\0\0\0\0\0\0\0\2{}"s, too_long + "2 bytes, given 144115188075855872"},
    {"Git LFS pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n",
     ": a Git LFS pointer, not the file itself: git lfs pull"},
    {"text that begins alike", "version https://git-lfs.example/spec/v1\noid sha256:0\nsize 4\n", too_long},
    {"pickle", "\x80\x02}q\0X\1\0\0\0aK\1s."s, too_long},
};

const std::string json = "malformed JSON at byte ";
const std::vector<Malformed> bad_json = {
    {"byte-order mark", file_of("\xEF\xBB\xBF{}"),
     "wrong start of the header, expected '{', given \"\\xef\""},
    {"leading space", file_of(" {}"), "wrong start of the header"},
    {"no end", file_of("{" + good, "DATA"), json},
    {"text after the object", file_of("{} x"), json},
    {"NUL padding", file_of("{}\0\0\0\0\0\0"s), "NUL at byte 2 of the header"},
    {"NUL, then more", file_of("{}\0{\"b\":1}"s), "NUL at byte 2 of the header"},
    {"NUL in a name", file_of("{\"a\0b\":1}"s), "NUL at byte 3 of the header"},
    {"NUL in a name by an escape", file_of("{" + floats(R"("a\u0000b")", "[0,4]") + "}", "DATA"),
     "tensor \"a\\x00b\": NUL in the name"},
    {"newline in a name", file_of("{\"a\nb\":1}"), "control character"},
    {"bad UTF-8", file_of("{\"\xff\":1}"), "ill-formed UTF-8"},
    {"lone upper surrogate", file_of(R"({"\ud800":1})"), "surrogate"},
};

const std::vector<Malformed> bad_structure = {
    {"name twice", file_of("{" + good + "," + good + "}", "DATA"),
     "duplicate name, expected every name once"},
    {"name twice by an escape", file_of("{" + good + "," + floats(R"("\u0061")", "[4,8]") + "}", "DATADATA"),
     "duplicate name, expected every name once, given \"a\" twice"},
    {"field twice", file_of(R"({"a":{"dtype":"F32","dtype":"F32"}})"), "duplicate field"},
    {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})"), "given \"__metadata__\" twice"},
    {"metadata key twice", file_of(R"({"__metadata__":{"k":"1","k":"2"}})"), "__metadata__: duplicate name"},
    {"metadata a string", file_of(R"({"__metadata__":"x"})"), "expected an object, given the string \"x\""},
    {"metadata with a number", file_of(R"({"__metadata__":{"k":1}})"),
     "\"k\", expected a string, given the number 1"},
    {"tensor a number", file_of(R"({"a":7})"),
     "\"a\": wrong kind of value, expected an object, given the number 7"},
    {"tensor true", file_of(R"({"a":true})"), "wrong kind of value, expected an object, given true"},
    {"empty tensor", file_of(R"({"a":{}})"), "no dtype"},
    {"no dtype", file_of(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "DATA"), "no dtype"},
    {"no shape", file_of(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "DATA"), "no shape"},
    {"no offsets", file_of(R"({"a":{"dtype":"F32","shape":[1]}})", "DATA"), "no data_offsets"},
    {"extra field", file_of(R"({"a":{"dtype":"F32","strides":[1]}})"), "unknown field"},
    {"unknown dtype", file_of(a_dtype(R"("F31")"), "DATA"), "unknown dtype, expected one of the format's"},
    {"lower-case dtype", file_of(a_dtype(R"("f32")"), "DATA"), "such as F32, given f32"},
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
    {"negative", file_of(a_tensor("[-1]", "[0,4]"), "DATA"), digits + "-1"},
    {"minus zero", file_of(a_tensor("[-0]", "[0,0]")), digits + "-0"},
    {"fraction", file_of(a_tensor("[1.5]", "[0,4]"), "DATA"), digits + "1.5"},
    {"infinite exponent", file_of(a_tensor("[1e999]", "[0,4]"), "DATA"), "number overflow"},
    {"dimension 2^63", file_of(a_tensor("[9223372036854775808]", "[0,4]"), "DATA"), "dimension too large"},
    {"dimension 2^64", file_of(a_tensor("[18446744073709551616]", "[0,4]"), "DATA"), digits},
    {"product 2^64", file_of(a_tensor("[4294967296,4294967296]", "[0,0]")), "size overflows"},
    {"product 2^64+4", file_of(a_tensor("[274177,67280421310721]", "[0,4]"), "DATA"), "size overflows"},
    {"overflow by the dtype's size", file_of(a_tensor("[4611686018427387904]", "[0,0]")), "size overflows"},
    {"zero beside 2^63", file_of(a_tensor("[0,9223372036854775808]", "[0,0]")), "dimension too large"},
    {"zero before an overflow", file_of(a_tensor("[0,4294967296,4294967296]", "[0,0]")), "size overflows"},
    {"zero after an overflow", file_of(a_tensor("[4294967296,4294967296,0]", "[0,0]")), "size overflows"},
    {"rank 65", file_of(a_tensor("[1" + repeat(",1", 64) + "]", "[0,4]"), "DATA"), "too many dimensions"},
};

const std::string misfit = "data_offsets do not fit shape and dtype, expected ";
const std::vector<Malformed> bad_offsets = {
    {"begin after end", file_of(a_tensor("[1]", "[4,0]"), "DATA"), "data_offsets in the wrong order"},
    {"no offsets inside", file_of(a_tensor("[1]", "[]"), "DATA"),
     "too few data_offsets, expected 2, given 0"},
    {"three offsets", file_of(a_tensor("[1]", "[0,4,8]"), "DATA"), "too many data_offsets"},
    {"offsets a string", file_of(a_tensor("[1]", "\"0,4\""), "DATA"), "wrong kind of data_offsets"},
    {"offsets an object", file_of(a_tensor("[1]", "{}"), "DATA"),
     "wrong kind of data_offsets, expected an array"},
    {"negative offset", file_of(a_tensor("[1]", "[-4,0]"), "DATA"), "bad number in data_offsets"},
    {"offset 2^64", file_of(a_tensor("[1]", "[0,18446744073709551616]"), "DATA"),
     "bad number in data_offsets"},
    {"offset 2^64-1", file_of(a_tensor("[1]", "[0,18446744073709551615]"), "DATA"), "outside the file"},
    {"span that wraps", file_of(a_tensor("[1]", "[18446744073709551612,0]"), "DATA"), "wrong order"},
    {"one byte outside", file_of(a_tensor("[1]", "[1,5]"), "DATA"),
     "outside the file, expected at most 4 bytes"},
    {"size too small", file_of(a_tensor("[2]", "[0,4]"), "DATA"), misfit + "8 bytes, given 4 bytes"},
    {"size too large", file_of(a_tensor("[1]", "[0,8]"), "DATADATA"), misfit + "4 bytes, given 8 bytes"},
    {"size of a zero dimension", file_of(a_tensor("[0]", "[0,4]"), "DATA"),
     misfit + "0 bytes, given 4 bytes"},
    {"size of a scalar", file_of(a_tensor("[]", "[0,0]")), misfit + "4 bytes, given 0 bytes"},
    {"overlap", file_of(two("[0,4]", "[2,6]"), "DATADA"), "tensor \"b\": overlap with the tensor before"},
    {"same span", file_of(two("[0,4]", "[0,4]"), "DATA"), "tensor \"b\": overlap"},
    {"nothing inside another",
     file_of("{" + good + "," + tensor("\"b\"", "\"U8\"", "[0]", "[2,2]") + "}", "DATA"),
     "tensor \"b\": overlap"},
    {"hole at the start", file_of(a_tensor("[1]", "[4,8]"), "DATADATA"), "tensor \"a\": hole"},
    {"hole in the middle", file_of(two("[0,4]", "[5,9]"), "DATADATAD"), "tensor \"b\": hole"},
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
    const std::string path = save(folder, malformed.bytes);
    check_refused(path, malformed.reason);
    check_error([&] { checkpoints::StoredCheckpoint stored(path); }, Code::file, path, malformed.reason);
  }
}

}  // namespace

TEST_CASE(
    "safetensors: bad header lengths, bad JSON, bad shapes, bad offsets, and other tables are refused") {
  for (const auto* cases : {&bad_lengths, &bad_json, &bad_structure, &bad_shapes, &bad_offsets})
    check_all_refused(*cases);
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
  REQUIRE(truncate(path.c_str(), 200000000) == 0);  // sparse: uses no disk space
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

TEST_CASE("safetensors: paths that are no regular file are refused") {
  const Folder folder;
  check_refused(folder / "none", "cannot open: No such file or directory");
  check_refused(folder.path, "not a file of bytes");
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  alarm(20);  // ends the test, if opening the FIFO waits for a writer
  check_refused(folder / "fifo", "not a file of bytes");
  alarm(0);
  check_refused("/dev/zero", "not a file of bytes");
  REQUIRE(symlink("nowhere", (folder / "link").c_str()) == 0);
  check_refused(folder / "link", "cannot open: No such file or directory");
  REQUIRE(symlink("loop", (folder / "loop").c_str()) == 0);
  check_refused(folder / "loop", "cannot open: Too many levels of symbolic links");
  check_refused(save(folder, "", "file") + "/x", "cannot open: Not a directory");
  REQUIRE(chmod(save(folder, file_of("{}"), "secret").c_str(), 0) == 0);
  const AsNobody nobody(folder);
  check_refused(folder / "secret", "cannot open: Permission denied");
}

TEST_CASE("safetensors: a line break in the path does not break the message's line") {
  const auto open = [] { SafetensorsFile file("/nowhere/a\nb\x1b[2J"); };
  check_error(open, Code::file, "/nowhere/a\\x0ab\\x1b[2J", ": cannot open");
}

TEST_CASE("safetensors: a file that shrinks is read as far as it goes") {
  const Folder folder;
  write_safetensors(folder / "t", {{"a", {{4}, {1, 2, 3, 4}}}});
  const SafetensorsFile file(folder / "t");
  const auto size = std::filesystem::file_size(folder / "t");
  REQUIRE(truncate((folder / "t").c_str(), static_cast<off_t>(size - 8)) == 0);
  CHECK(read_slice(file, "a", 0, 0, 2) == std::vector<float>{1, 2});  // a slice reads no byte outside itself
  check_error([&] { read_slice(file, "a", 0, 1, 3); }, Code::file, folder / "t",
              "the file shrank while it was read");
}

TEST_CASE("safetensors: a slice that cannot be read is refused") {
  const Folder folder;
  const std::string path = save(folder, file_of("{" + tensor("\"f\"", "\"F32\"", "[2,3]", "[0,24]") + "," +
                                                    tensor("\"i\"", "\"U64\"", "[1]", "[24,32]") + "," +
                                                    tensor("\"s\"", "\"F16\"", "[]", "[32,34]") + "}",
                                                std::string(34, '\0')));
  const SafetensorsFile file(path);
  const auto refused = [&](const char* name, int axis, int begin, int end, Code code,
                           const std::string& reason) {
    check_error([&] { read_slice(file, name, axis, begin, end); }, code, path, reason);
  };
  refused("g", 0, 0, 1, Code::file, "no tensor \"g\"");
  refused(
      "i", 0, 0, 1, Code::file,
      "tensor \"i\": wrong dtype, expected F32, F64, F16, BF16, I64 or I32 to read as float32, given U64");
  refused("f", 0, -1, 1, Code::argument, "tensor \"f\": part, expected indices of (2, 3), given (-1-0, 0-2)");
  refused("f", 0, 2, 1, Code::argument, "given (none, 0-2)");
  refused("f", 1, 0, 4, Code::argument, "given (0-1, 0-3)");
  check_error([&] { file.read("s", {{0, 1}}); }, Code::argument, path, "expected indices of (), given (0-0)");
}
