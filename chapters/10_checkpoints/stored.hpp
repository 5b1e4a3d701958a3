#pragma once

/// A checkpoint in files, as bytes: what is there, and where.

#include <optional>

#include "engine/checkpoints/manifest.hpp"
#include "engine/files/safetensors/safetensors.hpp"

namespace shard::checkpoints {

/// A tensor, and the files that have its parts: one part, unless devices have written their own.
struct Stored {
  std::string dtype;
  Shape shape;
  std::uint64_t bytes = 0;
  std::vector<StoredPart> parts;

  /// "model" or "optimizer": what the tensor belongs to.
  std::string stem() const { return parts.front().file.starts_with("optimizer") ? "optimizer" : "model"; }
};

/// One safetensors file; or a folder with a file, with several and their index, or with a manifest of parts. (With
/// a file and an index, the file counts, as for all readers.) Of a folder with neither, all files that are called
/// like parts of a model count.
class StoredCheckpoint {
 public:
  /// \throws Error file when a file of it cannot be read or is malformed
  explicit StoredCheckpoint(const std::string& path);

  const std::string& path() const { return path_; }
  /// By name.
  const std::map<std::string, Stored>& tensors() const { return tensors_; }
  /// Bytes of tensors in each file.
  std::map<std::string, std::uint64_t> bytes_by_file() const;
  /// What the files' headers say beside their tensors.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// What the index says beside its total size, as JSON: an object.
  const std::string& index_metadata() const { return index_metadata_; }
  /// Nothing where another library has written the folder.
  const std::optional<Manifest>& manifest() const { return manifest_; }
  /// What is wrong, each in a line: a tensor that the index names and its file does not have, one that the
  /// index does not name, and a file that it does not name.
  const std::vector<std::string>& problems() const { return problems_; }
  /// \throws Error file with the first problem
  void require_whole() const;

  /// `bytes` bytes of a tensor from `offset` on, which must be whole elements. \throws Error file
  std::vector<std::byte> read(const std::string& name, std::uint64_t offset, std::uint64_t bytes) const;

 private:
  const SafetensorsFile& opened(const std::string& file);
  void add_file(const std::string& name);
  void add_all(const std::string& stem);
  void add_indexed(const std::string& stem);
  void add_parts(const std::map<std::string, StoredParts>& tensors);
  void note_other_files();

  std::string path_;
  std::string folder_;  // with a slash; empty where the path is a file
  std::map<std::string, SafetensorsFile> files_;
  std::map<std::string, Stored> tensors_;
  std::map<std::string, std::string> metadata_;
  std::string index_metadata_ = "{}";
  std::optional<Manifest> manifest_;
  std::vector<std::string> problems_;
};

}  // namespace shard::checkpoints
