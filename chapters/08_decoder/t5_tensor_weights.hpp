#pragma once

/// What a device loads in tensor parallelism of an encoder-decoder.

#include "t5_blocks.hpp"

namespace shard::decoders {

/// \name Parameters from a checkpoint
/// @{
inline void load(const Checkpoint& c, const std::string& name, const T5Model&, Communicator& group,
                 Replicated& p) {
  p = Replicated(group, c.whole(name));
}
/// This device's rows or columns. Those of a head are not cut.
template <int Axis>
void load(const Checkpoint& c, const std::string& name, const T5Model& m, Communicator& group,
          Sharded<Axis>& p) {
  const Shape global = c.shape(name);
  const Index unit = is_of_attention(name) ? m.head_dim : 1;
  const Range mine = part(global.at(Axis) / unit, group.num_devices(), group.device_id());
  p = Sharded<Axis>(group, c.slice(name, Axis, mine.begin * unit, mine.end * unit), global,
                    mine.begin * unit);
}
/// @}

}  // namespace shard::decoders
