#include "engine/layouts/mesh_cut.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace shard {

Range range_after(const std::vector<MeshCut>& cuts, int dimension, Index extent) {
  Range range{0, extent};
  for (const auto& [along, over, pieces] : cuts) {
    if (along != dimension) continue;
    if (pieces > 0 && range.size() % pieces != 0)
      refuse(Code::argument, "cut", fmt::format("an extent of {} equal pieces", pieces),
             std::to_string(range.size()));
    const Index width = pieces > 0 ? range.size() / pieces : 1;
    const Range mine = part(range.size() / std::max<Index>(width, 1), over->num_devices(), over->device_id());
    range = {range.begin + mine.begin * width, range.begin + mine.end * width};
  }
  return range;
}

Ranges ranges_after(const std::vector<MeshCut>& cuts, const Shape& whole) {
  for (const MeshCut& cut : cuts)
    if (cut.dimension >= static_cast<int>(whole.size()))
      refuse(Code::argument, "cut", fmt::format("a tensor with a dimension {}", cut.dimension),
             to_string(whole));
  Ranges ranges;
  for (std::size_t d = 0; d < whole.size(); ++d)
    ranges.push_back(range_after(cuts, static_cast<int>(d), whole[d]));
  return ranges;
}

}  // namespace shard
