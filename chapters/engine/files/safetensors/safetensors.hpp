#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/basics/ranges.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/weights/checkpoint.hpp"

namespace shard {

/// One tensor of a safetensors file, as its header describes it.
struct SafetensorsEntry {
  std::string dtype;                ///< element type in the format's spelling: "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;  ///< row-major; [] is a scalar; a dimension may be 0
  std::uint64_t begin = 0;          ///< offset of the first byte in the data part
  std::uint64_t end = 0;            ///< offset behind the last byte
};

/// A safetensors file, open for reading slices of its tensors.
///
/// The format: 8 bytes of header length (little-endian), a JSON object {name: {dtype, shape, data_offsets}},
/// the data. Source: "Format", https://github.com/huggingface/safetensors. All of it that is not data is
/// Opening a file checks all of it but the data: the tensors must fill the data part without overlap or gap.
/// A tensor has at most 64 dimensions, a string of the header at most 1 MiB, and white space between two
/// tokens at most 4 KiB. This is stricter than the format, and bounds allocations by the size of the file.
class SafetensorsFile {
 public:
  /// Opens and checks `path`. \throws Error file unless it is a regular file that can be opened and is
  /// well-formed
  explicit SafetensorsFile(const std::string& path);

  /// Every tensor by its name.
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }

  /// The strings that the header has under `__metadata__`.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  const std::string& path() const { return path_; }

  /// Reads a part of tensor `name`, row-major, as float32; a scalar has no ranges. Reads only the bytes of
  /// that part, and gaps of less than a page. F64, I64 and I32 are rounded to the nearest float32 (too large:
  /// infinity). NaN and infinities stay. \throws Error file for an unknown name, a dtype other than these, F32,
  /// F16 and BF16, and a file that has become shorter; argument for indices outside the shape
  std::vector<float> read(const std::string& name, const Ranges& part) const;
  /// Reads `bytes` bytes of a tensor's data unchanged, from `offset` in them. \throws Error file for an
  /// unknown name, and a file that has become shorter; argument for bytes that the tensor does not have
  void read_bytes(const std::string& name, std::uint64_t offset, std::uint64_t bytes, void* into) const;

 private:
  const SafetensorsEntry& find(const std::string& name) const;

  std::string path_;
  FileDescriptor file_;
  std::uint64_t data_start_ = 0;  // bytes before the data part
  std::map<std::string, SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// The parameters of a safetensors file, float32 (or F64, F16, BF16, converted).
/// \throws Error file when it is missing, unreadable or malformed; slices: not_finite for a NaN or an
/// infinity
std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path);

}  // namespace shard
