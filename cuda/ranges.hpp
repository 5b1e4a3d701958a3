#pragma once

/// Ranges on the timeline of NVIDIA's profilers (NVTX), if SHARDBOOK_NVTX is set: each has a name, and for a call its
/// line of source.

#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/device/call_site.hpp"

namespace shard::cuda {

inline bool has_ranges() {
  static const bool is_set = std::getenv("SHARDBOOK_NVTX") != nullptr;
  return is_set;
}

/// A range during its lifetime. The profiler gives it the kernels that the host launches meanwhile. Ranges of one
/// thread are within one another.
class TimeRange {
 public:
  explicit TimeRange(std::string_view name, SourceLine where = SourceLine()) {
    if (!has_ranges()) return;
    const std::string line = to_string(where);
    nvtxRangePushA((std::string(name) + (line.empty() ? "" : " " + line)).c_str());
  }
  ~TimeRange() {
    if (has_ranges()) nvtxRangePop();
  }
  TimeRange(const TimeRange&) = delete;
  TimeRange& operator=(const TimeRange&) = delete;
};

}  // namespace shard::cuda
