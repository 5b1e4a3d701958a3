#include "engine/files/json_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "engine/basics/printable.hpp"
#include "engine/files/regular_file.hpp"

namespace shard {

namespace {

constexpr std::uint64_t max_bytes = 256 << 20;  // the index of a million tensors needs half of it
constexpr int max_depth = 100;
constexpr std::size_t max_values = 1 << 22;

std::string read_text(const std::string& path) {
  std::uint64_t size = 0;
  const FileDescriptor file = open_regular(path, size);
  if (size > max_bytes)
    bad_file(path, "too long", fmt::format("at most {} bytes", max_bytes), std::to_string(size));
  std::string text(size, '\0');
  read_exactly(file, path, 0, size, text.data());
  return text;
}

/// Passes the parser's events on, and refuses a name that occurs twice in one object. (The parser would take
/// the last one.) Also refuses a text that is too deep, or has too many values.
class NamesOnce {
 public:
  explicit NamesOnce(const std::string& path) : path_(path) {}

  bool operator()(int depth, nlohmann::json::parse_event_t event, const nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > max_depth)
      bad_file(path_, "nested too deeply", fmt::format("at most {} levels", max_depth), "more");
    const bool is_value =
        event == Event::value || event == Event::object_start || event == Event::array_start;
    if (is_value && ++values_ > max_values)
      bad_file(path_, "too many values", fmt::format("at most {}", max_values), "more");
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::key) open_.back().push_back(parsed.get<std::string>());
    if (event == Event::object_end) {
      if (open_.back().size() != parsed.size()) refuse_twice(open_.back());
      open_.pop_back();
    }
    return true;
  }

 private:
  [[noreturn]] void refuse_twice(std::vector<std::string>& names) const {
    std::ranges::sort(names);
    bad_file(path_, "duplicate name", "every name once",
             '"' + printable(*std::ranges::adjacent_find(names)) + "\" twice");
  }

  const std::string& path_;
  std::size_t values_ = 0;
  std::vector<std::vector<std::string>> open_;  // the names in each object that is still open
};

}  // namespace

nlohmann::json parse_json_object(std::string_view text, const std::string& path) try {
  refuse_git_lfs_pointer(path, text);
  // The parser would skip a byte-order mark, and take a NUL for the end of its input.
  if (text.starts_with("\xEF\xBB\xBF")) bad_file(path, "malformed JSON", "'{'", "a byte-order mark");
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    bad_file(path, fmt::format("malformed JSON at byte {}", nul), "well-formed JSON", "NUL");
  NamesOnce names_once(path);
  nlohmann::json json = nlohmann::json::parse(text, std::ref(names_once));
  if (!json.is_object()) bad_file(path, "wrong kind of JSON", "an object", json.type_name());
  return json;
} catch (const nlohmann::json::exception& error) {
  const std::string_view reason = error.what();  // the text begins with the library's own error number
  bad_file(path, "malformed JSON", "well-formed JSON", printable(reason.substr(reason.find("] ") + 2), 160));
}

nlohmann::json read_json_object(const std::string& path) {
  return parse_json_object(read_text(path), path);
}

}  // namespace shard
