#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/files/digest.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/host_tensor.hpp"

namespace shard {

/// A tensor that is to be written: its header's line.
struct SafetensorsLine {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;

  /// \throws Error argument where the format cannot hold it
  std::uint64_t bytes() const;
};

/// Writes a safetensors file tensor by tensor, so that no more than a part of one is ever in memory. The file
/// is as Hugging Face's library writes it, byte for byte: larger types first, then by name; the header
/// without spaces, padded to 8 bytes.
class SafetensorsWriter {
 public:
  /// Writes the header. Whoever reads `path` finds the old file until commit(): see Replacement.
  /// \throws Error file where nothing can be written there; argument for what the format cannot hold
  SafetensorsWriter(const std::string& path, std::vector<SafetensorsLine> tensors,
                    const std::map<std::string, std::string>& metadata = {});

  /// The order in which the data must come.
  const std::vector<SafetensorsLine>& order() const { return tensors_; }
  /// The next bytes of data. \throws Error file
  void write(const void* data, std::uint64_t bytes);
  /// Of the file as far as it is written (digest.hpp).
  std::string digest() const { return digest_.text(); }
  /// \throws Error file; internal unless all data have been written
  void commit();

 private:
  void add(const void* data, std::uint64_t bytes);

  std::string path_;
  std::vector<SafetensorsLine> tensors_;
  std::uint64_t left_ = 0;  // bytes of data that are still to come
  Digest digest_;
  Replacement file_;
};

/// Tensors in the order in which a file has their data.
std::vector<SafetensorsLine> in_file_order(std::vector<SafetensorsLine> tensors);

/// Writes `tensors` to `path` as F32, sorted by name: equal tensors give equal files. The whole file or none:
/// see Replacement. Error: Code::file where the file cannot be written; Code::argument for tensors that the
/// format cannot hold or whose shape and values disagree.
void write_safetensors(const std::string& path, const std::map<std::string, HostTensor>& tensors);

}  // namespace shard
