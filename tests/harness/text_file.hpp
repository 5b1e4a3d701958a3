#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace shard::testing {

/// A file with this text, removed by the destructor.
class TextFile {
 public:
  explicit TextFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("shardbook_test_" + std::to_string(getpid()) + "_" + std::to_string(made++))) {
    std::ofstream(path_) << text;
  }
  ~TextFile() { std::filesystem::remove(path_); }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  std::string path() const { return path_; }

 private:
  static inline int made = 0;  // each has a path of its own
  std::filesystem::path path_;
};

}  // namespace shard::testing
