#include "engine/files/json_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "engine/files/regular_file.hpp"
#include "engine/printable.hpp"

namespace shard {

namespace {

constexpr std::uint64_t max_bytes = 256 << 20;  // a million tensors need half of it

std::string read_text(const std::string& path) {
  std::uint64_t size = 0;
  const FileDescriptor file = open_regular(path, size);
  if (size > max_bytes)
    bad_file(path, "too long", fmt::format("at most {} bytes", max_bytes), std::to_string(size));
  std::string text(size, '\0');
  read_exactly(file, path, 0, size, text.data());
  return text;
}

/// Sees what the parser reads, and refuses a name that an object has twice. (The parser would take the last.)
class NamesOnce {
 public:
  explicit NamesOnce(const std::string& path) : path_(path) {}

  bool operator()(int, nlohmann::json::parse_event_t event, const nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
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
  std::vector<std::vector<std::string>> open_;  // the names of each object that has not ended
};

}  // namespace

nlohmann::json read_json_object(const std::string& path) try {
  const std::string text = read_text(path);
  refuse_git_lfs_pointer(path, text);
  NamesOnce names_once(path);
  nlohmann::json json = nlohmann::json::parse(text, std::ref(names_once));
  if (!json.is_object()) bad_file(path, "wrong kind of JSON", "an object", json.type_name());
  return json;
} catch (const nlohmann::json::exception& error) {
  const std::string_view reason = error.what();  // the library's own numbering stands before
  bad_file(path, "malformed JSON", "well-formed JSON", printable(reason.substr(reason.find("] ") + 2), 160));
}

}  // namespace shard
