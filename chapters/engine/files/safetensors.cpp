#include "engine/files/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "engine/device/error.hpp"
#include "engine/files/element_types.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/files/safetensors_header.hpp"
#include "engine/printable.hpp"

namespace shard {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and bytes are copied");

namespace {

constexpr std::uint64_t length_bytes = 8;        // of the field that gives the header's length
constexpr std::uint64_t window_bytes = 1 << 20;  // read at once where values cannot go straight to the result
constexpr std::uint64_t page_bytes = 4096;       // a gap below this costs less than a further read

std::uint64_t read_header_length(const FileDescriptor& file, const std::string& path, std::uint64_t size) {
  if (size < length_bytes)
    bad_file(path, "file too short", "at least 8 bytes", fmt::format("{} bytes", size));
  std::uint64_t length = 0;
  read_exactly(file, path, 0, length_bytes, &length);
  const std::uint64_t limit = std::min(size - length_bytes, safetensors::max_header_bytes);
  if (length > limit) {
    std::string beginning(std::min<std::uint64_t>(size, page_bytes), '\0');
    read_exactly(file, path, 0, beginning.size(), beginning.data());
    refuse_git_lfs_pointer(path, beginning);
  }
  if (length > limit)
    bad_file(path, "bad header length", fmt::format("at most {} bytes", limit), std::to_string(length));
  return length;
}

/// A slice along one axis of a row-major tensor: runs of bytes at equal distances.
struct Runs {
  std::uint64_t offset;  // of the first run, in the file
  std::uint64_t count;
  std::uint64_t bytes;   // of one run
  std::uint64_t stride;  // from one run's first byte to the next one's
};

Runs slice_runs(const std::vector<std::int64_t>& shape, std::size_t axis, std::int64_t begin,
                std::int64_t end, std::uint64_t element_bytes) {
  std::uint64_t outer = 1;
  std::uint64_t inner = element_bytes;
  for (std::size_t i = 0; i < axis; ++i) outer *= static_cast<std::uint64_t>(shape[i]);
  for (std::size_t i = axis + 1; i < shape.size(); ++i) inner *= static_cast<std::uint64_t>(shape[i]);
  const Runs runs{static_cast<std::uint64_t>(begin) * inner, outer,
                  static_cast<std::uint64_t>(end - begin) * inner,
                  static_cast<std::uint64_t>(shape[axis]) * inner};
  if (runs.bytes == runs.stride) return {runs.offset, 1, runs.count * runs.bytes, runs.count * runs.bytes};
  return runs;
}

/// Reads slices of one tensor of one file.
struct SliceReader {
  const FileDescriptor& file;
  const std::string& path;
  safetensors::ToFloat to_float;
  std::uint64_t element_bytes;
  bool is_float32;

  void read(const Runs& runs, float* out) const {
    const bool near = runs.stride - runs.bytes < page_bytes && runs.stride <= window_bytes / 2;
    if (runs.count > 1 && near) return read_through_gaps(runs, out);
    for (std::uint64_t i = 0; i < runs.count; ++i)
      read_run(runs.offset + i * runs.stride, runs.bytes, out + i * (runs.bytes / element_bytes));
  }

 private:
  void read_run(std::uint64_t offset, std::uint64_t bytes, float* out) const {
    if (is_float32) return read_exactly(file, path, offset, bytes, out);
    std::vector<std::byte> window(std::min(bytes, window_bytes));
    for (std::uint64_t done = 0; done < bytes; done += window.size()) {
      const std::uint64_t now = std::min<std::uint64_t>(window.size(), bytes - done);
      read_exactly(file, path, offset + done, now, window.data());
      to_float(window.data(), now / element_bytes, out + done / element_bytes);
    }
  }

  /// Many short runs by one read, the gaps between them included.
  void read_through_gaps(const Runs& runs, float* out) const {
    const std::uint64_t at_once = std::min(runs.count, window_bytes / runs.stride);
    const std::uint64_t elements = runs.bytes / element_bytes;
    std::vector<std::byte> window(at_once * runs.stride);
    for (std::uint64_t first = 0; first < runs.count; first += at_once) {
      const std::uint64_t now = std::min(at_once, runs.count - first);
      const std::uint64_t span = (now - 1) * runs.stride + runs.bytes;
      read_exactly(file, path, runs.offset + first * runs.stride, span, window.data());
      for (std::uint64_t i = 0; i < now; ++i)
        to_float(window.data() + i * runs.stride, elements, out + (first + i) * elements);
    }
  }
};

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  std::uint64_t size = 0;
  file_ = open_regular(path, size);
  std::string text(read_header_length(file_, path, size), '\0');
  read_exactly(file_, path, length_bytes, text.size(), text.data());
  data_start_ = length_bytes + text.size();
  safetensors::Header header = safetensors::parse_header(text, size - data_start_, path);
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
}

const SafetensorsEntry& SafetensorsFile::find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end())
    throw Error(Code::file, fmt::format("{}: no tensor \"{}\"", one_line(path_), printable(name)));
  return found->second;
}

std::vector<float> SafetensorsFile::read(const std::string& name, int axis, std::int64_t begin,
                                         std::int64_t end) const {
  const SafetensorsEntry& entry = find(name);
  const std::string who = fmt::format("tensor \"{}\"", printable(name));
  const safetensors::ToFloat to_float = safetensors::to_float(entry.dtype);
  if (to_float == nullptr)
    bad_file(path_, who + ": wrong dtype", "F32, F64, F16, BF16, I64 or I32 to read as float32", entry.dtype);
  std::vector<std::int64_t> shape = entry.shape;
  if (shape.empty()) shape = {1};
  const int rank = static_cast<int>(shape.size());
  if (axis < 0 || axis >= rank)
    throw Error(Code::argument, fmt::format("{}: {}: axis of a slice, expected 0 to {}, given {}",
                                            one_line(path_), who, rank - 1, axis));
  const std::int64_t length = shape[static_cast<std::size_t>(axis)];
  if (begin < 0 || begin > end || end > length)
    throw Error(Code::argument,
                fmt::format("{}: {}: slice along axis {}, expected within 0 to {}, given {} to {}",
                            one_line(path_), who, axis, length, begin, end));
  const std::uint64_t element = safetensors::element_bytes(entry.dtype);
  Runs runs = slice_runs(shape, static_cast<std::size_t>(axis), begin, end, element);
  runs.offset += data_start_ + entry.begin;
  std::vector<float> values(runs.count * (runs.bytes / element));
  if (!values.empty())
    SliceReader{file_, path_, to_float, element, entry.dtype == "F32"}.read(runs, values.data());
  return values;
}

void SafetensorsFile::read_bytes(const std::string& name, std::uint64_t offset, std::uint64_t bytes,
                                 void* into) const {
  const SafetensorsEntry& entry = find(name);
  if (offset > entry.end - entry.begin || bytes > entry.end - entry.begin - offset)
    throw Error(Code::argument,
                fmt::format("{}: tensor \"{}\": bytes, expected within {}, given {} from {} on",
                            one_line(path_), printable(name), entry.end - entry.begin, bytes, offset));
  read_exactly(file_, path_, data_start_ + entry.begin + offset, bytes, into);
}

}  // namespace shard
