#include "engine/files/safetensors/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>

#include "engine/basics/printable.hpp"
#include "engine/device/error.hpp"
#include "engine/files/regular_file.hpp"
#include "engine/files/safetensors/element_types.hpp"
#include "engine/files/safetensors/header.hpp"

namespace shard {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and bytes are copied");

namespace {

constexpr std::uint64_t length_bytes = 8;        // of the field that gives the header's length
constexpr std::uint64_t window_bytes = 1 << 20;  // of one read that does not go into the result
constexpr std::uint64_t page_bytes = 4096;       // a smaller gap costs less than a second read

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

/// Runs of bytes of equal length, at equal distances.
struct Runs {
  std::uint64_t offset;  // of the first run, in the file
  std::uint64_t count;
  std::uint64_t bytes;   // of one run
  std::uint64_t stride;  // from one run's first byte to the next one's
};

/// The runs of bytes of a part of a row-major tensor whose data begin at `start`. Consecutive runs at equal
/// distances are one entry.
std::vector<Runs> runs_of(const Shape& shape, const Ranges& part, std::uint64_t start,
                          std::uint64_t element_bytes) {
  std::vector<Runs> all;
  for_each_run(shape, part, [&](Index first, Index, Index length) {
    const Runs run{start + static_cast<std::uint64_t>(first) * element_bytes, 1,
                   static_cast<std::uint64_t>(length) * element_bytes, 0};
    const std::uint64_t before =
        all.empty() ? 0 : all.back().offset + (all.back().count - 1) * all.back().stride;
    if (!all.empty() && (all.back().count == 1 || run.offset - before == all.back().stride)) {
      all.back().stride = run.offset - before;
      ++all.back().count;
    } else {
      all.push_back(run);
    }
  });
  return all;
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

  /// Reads many short runs with one read, with the gaps between them.
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
    throw Error(Code::file, "{}: no tensor \"{}\"", one_line(path_), printable(name));
  return found->second;
}

std::vector<float> SafetensorsFile::read(const std::string& name, const Ranges& part) const {
  const SafetensorsEntry& entry = find(name);
  const std::string who = fmt::format("tensor \"{}\"", printable(name));
  const safetensors::ToFloat to_float = safetensors::to_float(entry.dtype);
  if (to_float == nullptr)
    bad_file(path_, who + ": wrong dtype", "F32, F64, F16, BF16, I64 or I32 to read as float32", entry.dtype);
  if (!fits(part, entry.shape))
    throw Error(Code::argument, "{}: {}: part, expected indices of {}, given {}", one_line(path_), who,
                to_string(entry.shape), to_string(part));
  const std::uint64_t element = safetensors::element_bytes(entry.dtype);
  std::vector<float> values(static_cast<std::size_t>(num_elements(shape_of(part))));
  float* out = values.data();
  const SliceReader reader{file_, path_, to_float, element, entry.dtype == "F32"};
  for (const Runs& runs : runs_of(entry.shape, part, data_start_ + entry.begin, element)) {
    reader.read(runs, out);
    out += runs.count * (runs.bytes / element);
  }
  return values;
}

void SafetensorsFile::read_bytes(const std::string& name, std::uint64_t offset, std::uint64_t bytes,
                                 void* into) const {
  const SafetensorsEntry& entry = find(name);
  if (offset > entry.end - entry.begin || bytes > entry.end - entry.begin - offset)
    throw Error(Code::argument, "{}: tensor \"{}\": bytes, expected within {}, given {} from {} on",
                one_line(path_), printable(name), entry.end - entry.begin, bytes, offset);
  read_exactly(file_, path_, data_start_ + entry.begin + offset, bytes, into);
}

namespace {

/// Checks every value without leaving the loop early, so that it can use vector instructions.
bool are_finite(const std::vector<float>& values) {
  constexpr std::uint32_t exponent = 0x7f800000;
  std::uint32_t others = 0;
  for (const float value : values) others |= (std::bit_cast<std::uint32_t>(value) & exponent) == exponent;
  return others == 0;
}

/// Refuses a value that is not finite, and names its indices in the whole tensor.
void require_finite(const std::string& what, const Ranges& part, const std::vector<float>& values) {
  if (are_finite(values)) return;
  const auto found = std::ranges::find_if_not(values, [](float v) { return std::isfinite(v); });
  Shape index = place_of(found - values.begin(), shape_of(part));
  for (std::size_t d = 0; d < index.size(); ++d) index[d] += part[d].begin;
  refuse(Code::not_finite, what, "finite numbers", fmt::format("{} at {}", *found, to_string(index)));
}

class FileCheckpoint : public ListedCheckpoint {
 public:
  explicit FileCheckpoint(SafetensorsFile file)
      : ListedCheckpoint(shapes_of(file.entries()), file.path()), file_(std::move(file)) {}

 private:
  std::vector<float> values(const std::string& name, const Ranges& part) const override {
    std::vector<float> values = file_.read(name, part);
    require_finite(source() + ": " + name, part, values);
    return values;
  }

  SafetensorsFile file_;
};

}  // namespace

std::unique_ptr<Checkpoint> open_checkpoint(const std::string& path) {
  return std::make_unique<FileCheckpoint>(SafetensorsFile(path));
}

}  // namespace shard
