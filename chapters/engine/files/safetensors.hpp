#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/files/regular_file.hpp"
#include "engine/ranges.hpp"

namespace shard {

/// One tensor of a safetensors file, as its header describes it.
struct SafetensorsEntry {
  std::string dtype;                ///< element type in the format's spelling: "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;  ///< row-major; [] is a scalar; a dimension may be 0
  std::uint64_t begin = 0;          ///< first byte, counted from the start of the data part
  std::uint64_t end = 0;            ///< one past the last byte, counted likewise
};

/// A safetensors file, open for reading slices of its tensors.
///
/// The format: 8 bytes of header length (little-endian), a JSON object {name: {dtype, shape, data_offsets}},
/// the data. Source: "Format", https://github.com/huggingface/safetensors. All of it that is not data is
/// checked when the file is opened: the tensors must tile the data part without overlap, hole or rest. So
/// that nothing much larger than the file is ever allocated, a tensor has at most 64 dimensions, a string of
/// the header at most 1 MiB and white space between two tokens at most 4 KiB: stricter than the format.
class SafetensorsFile {
 public:
  /// Opens and checks `path`, which must be a regular file. Error: Code::file, for a file that cannot be
  /// opened and for each way in which it can be malformed.
  explicit SafetensorsFile(const std::string& path);

  /// Every tensor by its name.
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }

  /// The free-form strings that the header keeps under `__metadata__`.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  const std::string& path() const { return path_; }

  /// Elements `begin` to `end` (exclusive) along `axis` of tensor `name`, whole along every other axis,
  /// row-major, as float32. Reads the bytes of that slice; gaps of less than a page are read through. A
  /// scalar is read as one element along axis 0. F64, I64 and I32 are rounded to the nearest float32 (too
  /// large: infinity); NaN and infinities pass unchanged. Error: Code::file for an unknown name, a dtype other
  /// than these, F32, F16 and BF16, and a file that shrank since it was opened; Code::argument for an axis or
  /// range outside the shape.
  std::vector<float> read(const std::string& name, int axis, Index begin, Index end) const;
  /// The same of any part; a scalar has no ranges.
  std::vector<float> read(const std::string& name, const Ranges& part) const;
  /// So many bytes of a tensor's data as they are, from an offset in it on. Error: Code::file for an unknown
  /// name and a file that shrank; Code::argument for bytes that the tensor does not have.
  void read_bytes(const std::string& name, std::uint64_t offset, std::uint64_t bytes, void* into) const;

 private:
  const SafetensorsEntry& find(const std::string& name) const;

  std::string path_;
  FileDescriptor file_;
  std::uint64_t data_start_ = 0;  // bytes before the data part
  std::map<std::string, SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace shard
