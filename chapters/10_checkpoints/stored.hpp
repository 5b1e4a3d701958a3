#pragma once

/// A checkpoint in files, as bytes: what is there, and where.

#include <memory>

#include "engine/files/safetensors.hpp"

namespace shard::checkpoints {

/// A tensor, and the file that has it.
struct Stored {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
  std::string file;  ///< its name in the folder
};

/// One safetensors file, or a folder with model.safetensors or with an index of several. Of a folder without
/// an index, all files that are called like parts of a model count.
class StoredCheckpoint {
 public:
  /// \throws Error file when a file of it cannot be read or is malformed
  explicit StoredCheckpoint(const std::string& path);

  const std::string& path() const { return path_; }
  /// By name.
  const std::map<std::string, Stored>& tensors() const { return tensors_; }
  /// What the files' headers say beside their tensors.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// What the index says beside its total size, as JSON: an object.
  const std::string& index_metadata() const { return index_metadata_; }
  /// What is wrong, each in a line: a tensor that the index names and its file does not have, one that the
  /// index does not name, and a file that it does not name.
  const std::vector<std::string>& problems() const { return problems_; }
  /// \throws Error file with the first problem
  void require_whole() const;

  /// So many bytes of a tensor, from an offset in it on. \throws Error file
  std::vector<std::byte> read(const std::string& name, std::uint64_t offset, std::uint64_t bytes) const;

 private:
  void add_file(const std::string& folder, const std::string& name);
  void add_all(const std::string& folder);
  void read_index(const std::string& folder);

  std::string path_;
  std::map<std::string, SafetensorsFile> files_;
  std::map<std::string, Stored> tensors_;
  std::map<std::string, std::string> metadata_;
  std::string index_metadata_ = "{}";
  std::vector<std::string> problems_;
};

}  // namespace shard::checkpoints
