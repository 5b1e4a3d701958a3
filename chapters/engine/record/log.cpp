#include "engine/record/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace shard {

void Text::grow(std::size_t more) {
  bytes_.resize(2 * (size_ + more));
}

void write_json(Text& text, std::string_view value) {
  const bool is_plain =
      std::ranges::all_of(value, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
  if (!is_plain) return text.add(Entry(value).dump(-1, ' ', false, Entry::error_handler_t::replace));
  text.add('"');
  text.add(value);
  text.add('"');
}

LogBook::LogBook(const std::string& path)
    : file_(path.empty() ? nullptr : std::fopen(path.c_str(), "we"), &std::fclose) {}

void LogBook::keep() {
  flush();
  kept_ += later_.view();
  later_.clear();
  flushed_ = 0;
}

void LogBook::forget() {
  later_.clear();
  if (std::exchange(flushed_, 0) == 0) return;
  const long kept_bytes = static_cast<long>(kept_.size());
  if (std::fseek(file_.get(), kept_bytes, SEEK_SET) != 0) return;
  [[maybe_unused]] const int result = ftruncate(fileno(file_.get()), kept_bytes);
}

void LogBook::flush() {
  if (!file_) return;
  std::fwrite(later_.view().data() + flushed_, 1, later_.size() - flushed_, file_.get());
  std::fflush(file_.get());
  flushed_ = later_.size();
}

Log log_of(const std::string& text) {
  std::istringstream lines(text);
  Log log;
  for (std::string line; std::getline(lines, line);) {
    Entry entry = Entry::parse(line, nullptr, false);
    if (entry.is_discarded()) break;
    log.push_back(std::move(entry));
  }
  return log;
}

Log log_in(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return log_of(text.str());
}

}  // namespace shard
