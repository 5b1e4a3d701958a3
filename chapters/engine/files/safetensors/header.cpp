#include "engine/files/safetensors/header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/basics/printable.hpp"
#include "engine/device/error.hpp"

namespace shard::safetensors {

namespace {

constexpr std::uint64_t int64_max = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t max_gap_bytes = 4096;  // white space and digits between two other characters of JSON
constexpr std::string_view json_space = " \t\r\n";

/// Receives the JSON parser's events and accepts no more than a safetensors header. Any other value ends the
/// parse at once, so the depth is at most three: header, tensor, list.
class HeaderReader {
 public:
  HeaderReader(std::uint64_t data_bytes, const std::string& path) : data_bytes_(data_bytes), path_(path) {}

  Header take() { return std::move(header_); }

  bool key(std::string& key) {
    if (where_ == Where::header) new_name(key);
    if (where_ == Where::tensor) new_field(key);
    if (where_ == Where::metadata) new_metadata(key);
    return true;
  }

  bool start_object(std::size_t) {
    if (where_ == Where::outside) {
      where_ = Where::header;
    } else if (where_ == Where::header) {
      where_ = name_ == "__metadata__" ? Where::metadata : Where::tensor;
      entry_ = {};
      offsets_.clear();
      has_field_ = {};
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() {
    if (where_ == Where::tensor) finish_tensor();
    where_ = where_ == Where::header ? Where::outside : Where::header;
    return true;
  }

  bool start_array(std::size_t) {
    if (where_ != Where::tensor || field_ == "dtype") unexpected("an array");
    where_ = field_ == "shape" ? Where::shape : Where::offsets;
    return true;
  }

  bool end_array() {
    where_ = Where::tensor;
    return true;
  }

  bool string(std::string& value) {
    if (where_ == Where::metadata) {
      header_.metadata[metadata_key_] = value;
    } else if (where_ == Where::tensor && field_ == "dtype") {
      if (element_bytes(value) == 0)
        fail("unknown dtype", "one of the format's, such as F32", printable(value));
      entry_.dtype = value;
    } else {
      unexpected(fmt::format("the string \"{}\"", printable(value)));
    }
    return true;
  }

  bool number_unsigned(std::uint64_t value) {
    if (where_ == Where::shape) {
      if (value > int64_max) fail("dimension too large", "at most 2^63-1", std::to_string(value));
      if (entry_.shape.size() == max_rank)
        fail("too many dimensions", fmt::format("at most {}", max_rank), "more");
      entry_.shape.push_back(static_cast<std::int64_t>(value));
    } else if (where_ == Where::offsets) {
      if (offsets_.size() == 2) fail("too many data_offsets", "2", "more");
      offsets_.push_back(value);
    } else {
      unexpected(fmt::format("the number {}", value));
    }
    return true;
  }

  // The parser calls these two for numbers that are no unsigned integers of at most 64 bits.
  bool number_integer(std::int64_t value) { unexpected(value == 0 ? "-0" : std::to_string(value)); }
  bool number_float(double, const std::string& text) { unexpected(printable(text)); }

  bool null() { unexpected("null"); }
  bool boolean(bool value) { unexpected(value ? "true" : "false"); }
  bool binary(std::vector<std::uint8_t>&) { unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) {
    std::string_view reason = error.what();
    const std::size_t start = reason.find("syntax error");  // behind the library's error number
    if (start != std::string_view::npos) reason.remove_prefix(start);
    bad_file(path_, fmt::format("malformed JSON at byte {} of the header", position), "well-formed JSON",
             printable(reason, 160));
  }

 private:
  static constexpr std::array<std::string_view, 3> field_names = {"dtype", "shape", "data_offsets"};
  enum class Where { outside, header, tensor, shape, offsets, metadata };

  void new_name(const std::string& name) {
    place_ = header_.entries.lower_bound(name);
    const bool is_entry = place_ != header_.entries.end() && place_->first == name;
    if (name == "__metadata__" ? has_metadata_ : is_entry)
      bad_file(path_, "duplicate name", "every name once", '"' + printable(name) + "\" twice");
    name_ = name;
    if (name == "__metadata__") has_metadata_ = true;
    if (name.find('\0') != std::string::npos) fail("NUL in the name", "none", "\\u0000");
  }

  void new_field(const std::string& field) {
    const auto found = std::ranges::find(field_names, field);
    if (found == field_names.end())
      fail("unknown field", "dtype, shape and data_offsets", '"' + printable(field) + '"');
    bool& has_it = has_field_[static_cast<std::size_t>(found - field_names.begin())];
    if (has_it) fail("duplicate field", "every field once", '"' + field + "\" twice");
    has_it = true;
    field_ = *found;
  }

  void new_metadata(const std::string& key) {
    if (header_.metadata.count(key) > 0)
      bad_file(path_, "__metadata__: duplicate name", "every name once", '"' + printable(key) + "\" twice");
    metadata_key_ = key;
  }

  void finish_tensor() {
    for (std::size_t i = 0; i < field_names.size(); ++i)
      if (!has_field_[i]) fail(fmt::format("no {}", field_names[i]), "dtype, shape and data_offsets", "none");
    if (offsets_.size() != 2) fail("too few data_offsets", "2", std::to_string(offsets_.size()));
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    check_size();
    header_.entries.emplace_hint(place_, std::move(name_), std::move(entry_));
  }

  void check_size() const {
    const std::string span = fmt::format("[{}, {}]", entry_.begin, entry_.end);
    if (entry_.begin > entry_.end) fail("data_offsets in the wrong order", "begin at most end", span);
    if (entry_.end > data_bytes_)
      fail("data_offsets outside the file", fmt::format("at most {} bytes of data", data_bytes_), span);
    const std::optional<std::uint64_t> bytes = tensor_bytes(entry_.shape, element_bytes(entry_.dtype));
    if (!bytes) fail("size overflows", "at most 2^63-1 bytes, zeros left aside", "more");
    if (*bytes != entry_.end - entry_.begin)
      fail("data_offsets do not fit shape and dtype", fmt::format("{} bytes", *bytes),
           fmt::format("{} bytes", entry_.end - entry_.begin));
  }

  [[noreturn]] void fail(std::string_view what, std::string_view expected, std::string_view given) const {
    bad_file(path_, fmt::format("tensor \"{}\": {}", printable(name_), what), expected, given);
  }

  /// Refuses a value of a wrong kind.
  [[noreturn]] void unexpected(std::string_view given) const {
    if (where_ == Where::outside) bad_file(path_, "wrong kind of header", "an object", given);
    if (where_ == Where::metadata)
      bad_file(path_, fmt::format("__metadata__: wrong kind of value for \"{}\"", printable(metadata_key_)),
               "a string", given);
    if (where_ == Where::header) fail("wrong kind of value", "an object", given);
    if (where_ == Where::tensor)
      fail(fmt::format("wrong kind of {}", field_), field_ == "dtype" ? "a string" : "an array", given);
    fail(fmt::format("bad number in {}", field_), "digits alone, at most 2^63-1", given);
  }

  std::uint64_t data_bytes_;
  const std::string& path_;
  Header header_;
  bool has_metadata_ = false;
  Where where_ = Where::outside;
  std::string name_;                                         // of the tensor being read
  std::map<std::string, SafetensorsEntry>::iterator place_;  // that tensor's entry
  std::string_view field_;                                   // of that tensor
  std::array<bool, field_names.size()> has_field_{};         // which fields it has
  std::string metadata_key_;
  SafetensorsEntry entry_;
  std::vector<std::uint64_t> offsets_;
};

/// The JSON parser stores a token, and white space, in memory that doubles as it grows. Bounds on both keep
/// this memory within the size of the file.
void check_token_lengths(std::string_view text, const std::string& path) {
  bool in_string = false;
  bool escaped = false;
  std::size_t length = 0;
  for (const char c : text) {
    const bool is_mark = !in_string && std::string_view("{}[]:,").find(c) != std::string_view::npos;
    if (is_mark || (c == '"' && !escaped)) {
      in_string ^= c == '"';
      length = 0;
      continue;
    }
    escaped = in_string && c == '\\' && !escaped;
    ++length;
    if (in_string && length > max_string_bytes)
      bad_file(path, "string in the header too long", fmt::format("at most {} bytes", max_string_bytes),
               "more");
    if (!in_string && length > max_gap_bytes)
      bad_file(path, "number or white space in the header too long",
               fmt::format("at most {} bytes", max_gap_bytes), "more");
  }
}

/// The tensors' spans, in order of offset, must cover the data part exactly.
void check_tiling(const Header& header, std::uint64_t data_bytes, const std::string& path) {
  using Item = std::map<std::string, SafetensorsEntry>::value_type;
  std::vector<const Item*> items;
  items.reserve(header.entries.size());
  for (const Item& item : header.entries) items.push_back(&item);
  std::ranges::sort(items, {}, [](const Item* i) { return std::pair(i->second.begin, i->second.end); });
  std::uint64_t covered = 0;
  for (const Item* item : items) {
    const auto& [name, entry] = *item;
    if (entry.begin != covered)
      bad_file(path,
               fmt::format("tensor \"{}\": {} the tensor before", printable(name),
                           entry.begin < covered ? "overlap with" : "hole after"),
               fmt::format("begin {}", covered), std::to_string(entry.begin));
    covered = entry.end;
  }
  if (covered != data_bytes)
    bad_file(path, "bytes after the last tensor", fmt::format("{} bytes of data", covered),
             std::to_string(data_bytes));
}

}  // namespace

Header parse_header(std::string_view text, std::uint64_t data_bytes, const std::string& path) {
  if (text.empty()) bad_file(path, "empty header", "a JSON object", "0 bytes");
  if (text.front() != '{')
    bad_file(path, "wrong start of the header", "'{'", '"' + printable(text.substr(0, 1)) + '"');
  const std::size_t nul = text.find('\0');  // the parser would take it for the end
  if (nul != std::string_view::npos)
    bad_file(path, fmt::format("NUL at byte {} of the header", nul), "JSON", "NUL");
  text = text.substr(0, text.find_last_not_of(json_space) + 1);
  check_token_lengths(text, path);
  HeaderReader reader(data_bytes, path);
  nlohmann::json::sax_parse(text, &reader);  // strict: anything after the object is an error
  Header header = reader.take();
  check_tiling(header, data_bytes, path);
  return header;
}

std::optional<std::uint64_t> tensor_bytes(const std::vector<std::int64_t>& shape,
                                          std::uint64_t element_bytes) {
  std::uint64_t bytes = element_bytes;  // zeros left aside
  for (const std::int64_t dimension : shape) {
    const auto size = std::max<std::uint64_t>(static_cast<std::uint64_t>(dimension), 1);
    if (size > int64_max / bytes) return std::nullopt;
    bytes *= size;
  }
  return std::ranges::find(shape, 0) == shape.end() ? bytes : 0;
}

std::optional<std::string> json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace shard::safetensors
