#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/basics/ranges.hpp"
#include "engine/files/regular_file.hpp"

namespace shard {

/// The header's line of a tensor.
struct SafetensorsLine {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;

  /// The size of the data. \throws Error argument when it exceeds what the format can hold
  std::uint64_t bytes() const;
};

/// Writes a safetensors file in pieces, so that memory never holds a whole tensor. The file equals that of
/// Hugging Face's library byte for byte: larger types first, then by name; the header without spaces, padded
/// to 8 bytes.
class SafetensorsWriter {
 public:
  /// Writes the header. A reader of `path` finds the old file until commit(): see Replacement.
  /// \throws Error file when it cannot be written; argument for tensors that the format cannot hold
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsLine> tensors,
                    const std::map<std::string, std::string>& metadata = {});

  /// The tensors in the order in which their data must be written.
  const std::vector<SafetensorsLine>& order() const { return tensors_; }
  /// Appends bytes of data. \throws Error file
  void write(const void* data, std::uint64_t bytes);
  /// The digest of the bytes written so far (Digest).
  std::string digest() const { return digest_.text(); }
  /// Completes the file. \throws Error file; internal unless all data have been written
  void commit();

 private:
  void add(const void* data, std::uint64_t bytes);

  std::string path_;
  std::vector<SafetensorsLine> tensors_;
  std::uint64_t left_ = 0;  // bytes of data that are still missing
  Digest digest_;
  Replacement file_;
};

/// Sorts tensors into the order of their data in a file.
std::vector<SafetensorsLine> in_file_order(std::vector<SafetensorsLine> tensors);

/// Writes `tensors` to `path` as F32, sorted by name, so that equal tensors give equal files. Writes the
/// whole file or nothing: see Replacement. \throws Error file when it cannot be written; argument for tensors
/// that the format cannot hold, or whose shape and values disagree
void write_safetensors(const std::string& path, const std::map<std::string, HostTensor>& tensors);

}  // namespace shard
