// Valid safetensors files, and the values read from them.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "tests/files/safetensors_files.hpp"

using namespace std::string_literals;
using namespace shard;
using namespace shard::testing;

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
  CHECK(read_slice(file, "a", 0, 0, 1).size() == 1);
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

std::vector<Range> ranges_within(Index length) {
  std::vector<Range> ranges;
  for (Index begin = 0; begin <= length; ++begin)
    for (Index end = begin; end <= length; ++end) ranges.push_back({begin, end});
  return ranges;
}

/// The slice of a tensor of shape (outer, length, inner) in which element i has the value i.
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

TEST_CASE("safetensors: every part of a tensor of three dimensions") {
  const Folder folder;
  const SafetensorsFile single(
      save(folder, file_of(rank3("\"F32\"", 4, 3, 4, 5), numbered<float>(60)), "32"));
  const SafetensorsFile twice(
      save(folder, file_of(rank3("\"F64\"", 8, 3, 4, 5), numbered<double>(60)), "64"));
  for (const Range& x : ranges_within(3))
    for (const Range& y : ranges_within(4))
      for (const Range& z : ranges_within(5)) {
        const Ranges part = {x, y, z};
        std::vector<float> expected;
        for (Index i = x.begin; i < x.end; ++i)
          for (Index j = y.begin; j < y.end; ++j)
            for (Index k = z.begin; k < z.end; ++k)
              expected.push_back(static_cast<float>((i * 4 + j) * 5 + k));
        INFO(to_string(part));
        CHECK(single.read("a", part) == expected);
        CHECK(twice.read("a", part) == expected);
      }
  const Ranges beyond = {{0, 3}, {0, 4}, {0, 6}};
  check_error([&] { single.read("a", beyond); }, Code::argument, folder / "32",
              "expected indices of (3, 4, 5), given (0-2, 0-3, 0-5)");
}

TEST_CASE("safetensors: slices larger than the window, in few and many runs, within a bound of memory") {
  const Folder folder;
  struct Slice {
    std::size_t outer, length, inner, begin, end;
  };
  for (const Slice& s : {Slice{700, 3, 300, 1, 2},           // many short runs, read through the gaps
                         Slice{5, 3000, 20, 10, 20},         // few short runs, far apart
                         Slice{2, 3, 140000, 1, 3},          // runs beyond the window
                         Slice{2, 300000, 1, 0, 299900},     // and small gaps between them
                         Slice{5, 65536, 1, 0, 65535},       // in F64, runs are half a window apart
                         Slice{4, 65537, 1, 1, 65537},       // in F64, runs are further apart
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
          read_slice(file, "a", 1, static_cast<Index>(s.begin), static_cast<Index>(s.end));
      CHECK(allocated::peak - before <= values.size() * sizeof(float) + mebibyte + 65536);
      CHECK((values == numbered_slice(s.outer, s.length, s.inner, s.begin, s.end)));  // too long to print
    }
  }
}

TEST_CASE("safetensors: empty tensors and scalars are read") {
  const Folder folder;
  write_safetensors(folder / "t", {{"none", {{2, 0, 3}, {}}}, {"one", {{}, {7}}}});
  const SafetensorsFile file(folder / "t");
  CHECK(read_slice(file, "none", 0, 0, 2).empty());
  CHECK(read_slice(file, "none", 1, 0, 0).empty());
  CHECK(read_slice(file, "none", 2, 1, 3).empty());
  CHECK(file.entries().at("one").shape.empty());
  CHECK(file.read("one", {}) == std::vector<float>{7});
}

namespace {

std::vector<float> read_as(const char* dtype, int bytes, const std::string& data) {
  const Folder folder;
  const std::size_t count = data.size() / static_cast<std::size_t>(bytes);
  const SafetensorsFile file(save(folder, file_of(rank3(dtype, bytes, 1, 1, count), data)));
  return read_slice(file, "a", 2, 0, static_cast<Index>(count));
}

}  // namespace

TEST_CASE("safetensors: all 65536 values of F16 and of BF16") {
  const std::vector<float> halves = read_as("\"F16\"", 2, numbered<std::uint16_t>(65536));
  const std::vector<float> brains = read_as("\"BF16\"", 2, numbered<std::uint16_t>(65536));
  int wrong_halves = 0;
  int wrong_brains = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    // The definition: (-1)^sign 2^(exponent-15) 1.fraction, except for exponents 0 and 31.
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

TEST_CASE("safetensors: I64 and I32 are rounded to the nearest float32") {
  CHECK(read_as("\"I64\"", 8, raw<std::int64_t>({0, -100, 32000, (1 << 24) + 1, INT64_MIN})) ==
        std::vector<float>{0, -100, 32000, 0x1p24F, -0x1p63F});
  CHECK(read_as("\"I32\"", 4, raw<std::int32_t>({7, -100, INT32_MAX})) ==
        std::vector<float>{7, -100, 0x1p31F});
}

TEST_CASE("safetensors: F32 passes bit by bit") {
  const std::string bits =
      raw<std::uint32_t>({0, 0x80000000, 1, 0x007fffff, 0x7f800000, 0xff800000, 0x7fc12345, 0x7fa00001});
  const std::vector<float> values = read_as("\"F32\"", 4, bits);
  CHECK(std::memcmp(values.data(), bits.data(), bits.size()) == 0);
}
