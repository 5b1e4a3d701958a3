#include "engine/record/log.hpp"

#include <unistd.h>

#include <fstream>
#include <iterator>

namespace shard {

LogBook::LogBook(const std::string& path)
    : file_(path.empty() ? nullptr : std::fopen(path.c_str(), "we"), &std::fclose) {}

void LogBook::keep() {
  flush();
  if (file_) kept_bytes_ = std::ftell(file_.get());
  kept_.insert(kept_.end(), std::make_move_iterator(later_.begin()), std::make_move_iterator(later_.end()));
  later_.clear();
  flushed_ = 0;
}

void LogBook::forget() {
  later_.clear();
  flushed_ = 0;
  if (!file_ || std::fseek(file_.get(), kept_bytes_, SEEK_SET) != 0) return;
  [[maybe_unused]] const int result = ftruncate(fileno(file_.get()), kept_bytes_);
}

void LogBook::flush() {
  if (!file_) return;
  for (; flushed_ < later_.size(); ++flushed_) {
    const std::string line = later_[flushed_].dump() + '\n';
    std::fwrite(line.data(), 1, line.size(), file_.get());
  }
  std::fflush(file_.get());
}

Log LogBook::all(bool with_later) const {
  Log all = kept_;
  if (with_later) all.insert(all.end(), later_.begin(), later_.end());
  return all;
}

Log log_in(const std::string& path) {
  std::ifstream file(path);
  Log log;
  for (std::string line; std::getline(file, line);) {
    Entry entry = Entry::parse(line, nullptr, false);
    if (entry.is_discarded()) break;
    log.push_back(std::move(entry));
  }
  return log;
}

}  // namespace shard
