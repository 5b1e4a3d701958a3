#pragma once

#include <map>

#include "engine/device/split.hpp"

namespace shard::local {

/// The devices of a job that do not run. The first and the last of alike devices run, and stand for those between
/// them: collectives get the same contribution from each.
struct Absence {
  /// An absent device is number `step` of `steps` on the way from the first to the last.
  struct Between {
    int first, last;
    Index step, steps;
  };
  std::map<int, Between> devices;  ///< by id
  bool is_refuted = false;         ///< a call has shown that devices are not alike
};

}  // namespace shard::local
