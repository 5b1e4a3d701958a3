#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/device.hpp"

namespace shard {

/// A row-major tensor on the host.
struct HostTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
/// The transpose of a matrix.
HostTensor transposed(const HostTensor& matrix);

/// The size of the pieces in which tensors move between files, the host and devices. A piece is read and
/// written several times, so it fits into a core's second-level cache. Pieces of 4 MiB are no faster.
inline constexpr std::int64_t piece_bytes = 256 << 10;
inline constexpr std::int64_t piece_elements = piece_bytes / 4;  // of float32

/// The whole tensor.
Ranges all_of(const Shape& whole);
/// The part [begin, end) along `axis`, with all indices of the other axes.
Ranges along(const Shape& whole, int axis, Index begin, Index end);
/// The shape of a part.
Shape shape_of(const Ranges& ranges);
/// The intersection of two parts: an empty range along a dimension where they do not overlap.
Ranges common(const Ranges& a, const Ranges& b);
/// Whether every range lies in the shape.
bool fits(const Ranges& ranges, const Shape& whole);
/// "(0-3, 5-6)", the last index of each range included.
std::string to_string(const Ranges& ranges);

/// Calls visit(in_whole, in_part, length) for each contiguous run of elements, in row-major order. in_whole
/// and in_part are the offsets, in elements, at which the run begins in the whole tensor and in the part.
template <class Visit>
void for_each_run(const Shape& whole, const Ranges& part, const Visit& visit) {
  const std::size_t rank = whole.size();
  Index length = 1;
  std::size_t cut = rank;  // dimensions from here on are whole
  while (cut > 0 && part[cut - 1] == Range{0, whole[cut - 1]}) length *= whole[--cut];
  if (cut > 0) length *= part[--cut].size();
  Index runs = length == 0 ? 0 : 1;
  for (std::size_t d = 0; d < cut; ++d) runs *= part[d].size();
  for (Index run = 0; run < runs; ++run) {
    Index rest = run, in_whole = 0, stride = 1;
    for (std::size_t d = rank; d-- > 0; stride *= whole[d]) {
      const bool is_outer = d < cut;
      in_whole += (part[d].begin + (is_outer ? rest % part[d].size() : 0)) * stride;
      if (is_outer) rest /= part[d].size();
    }
    visit(in_whole, run * length, length);
  }
}

}  // namespace shard
