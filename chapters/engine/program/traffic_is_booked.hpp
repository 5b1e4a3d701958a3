#pragma once

namespace shard {

/// Whether this backend books bytes and messages from the closed form instead of measuring them.
inline bool traffic_is_booked() {
  return false;
}

}  // namespace shard
