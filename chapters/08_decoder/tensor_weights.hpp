#pragma once

/// What a device owns in tensor parallelism: heads, hidden units and rows of the vocabulary.
///
/// Heads stay whole. K says how keys and values lie. On as many devices as key-value heads, or fewer, these
/// are divided, and query heads follow theirs: K = Sharded<1>. On more devices, query heads are divided by
/// themselves, and each device computes all key-value heads: K = Replicated.

#include "blocks.hpp"

namespace shard::decoders {

template <Layout K>
using TensorBlock = Block<Replicated, Sharded<1>, K, Sharded<0>>;
template <Layout K>
using TensorWeights = Weights<TensorBlock<K>, Sharded<0>, Replicated>;

/// The heads that each device has.
struct TensorHeads {
  Index heads, key_heads;
  int devices;

  /// Of a decoder; of a T5, where each head has keys and values of its own.
  template <class Model>
  TensorHeads(const Model& m, int num_devices) : heads(m.heads), key_heads(m.heads), devices(num_devices) {
    if constexpr (requires { m.key_heads; }) key_heads = m.key_heads;
  }

  bool divides_key_heads() const { return devices <= key_heads; }
  /// What is cut: key-value heads together with their query heads, or query heads.
  Index pieces() const { return divides_key_heads() ? key_heads : heads; }
  /// A device's part of an extent that belongs to heads or key-value heads.
  Range of(Index extent, int device) const {
    const Range mine = part(pieces(), devices, device);
    return {mine.begin * (extent / pieces()), mine.end * (extent / pieces())};
  }
  Range queries(int device) const { return of(heads, device); }
  Range keys(int device) const { return divides_key_heads() ? of(key_heads, device) : Range{0, key_heads}; }
};

/// This device's heads of some sequences.
inline AttentionHeads my_heads(const DecoderModel& m, const Communicator& group, Index sequences) {
  const TensorHeads all(m, group.num_devices());
  const Range keys = all.keys(group.device_id());
  return {sequences,   m.head_dim, key_heads_of(all.queries(group.device_id()), m.shared(), keys.begin),
          keys.size(), m.window,   m.how};
}

/// \name Parameters from a checkpoint
/// @{
template <class Model>
void load(const Checkpoint& c, const std::string& name, const Model&, Communicator& group, Replicated& p) {
  p = Replicated(group, c.whole(name));
}
/// This device's rows or columns. Those of a head are not cut.
template <int Axis, class Model>
void load(const Checkpoint& c, const std::string& name, const Model& m, Communicator& group,
          Sharded<Axis>& p) {
  const Shape global = c.shape(name);
  const Index extent = global.at(Axis);
  const bool is_of_heads = name.ends_with("query") || name.ends_with("key") || name.ends_with("value") ||
                           name.ends_with("_bias") || name.ends_with("output");
  const Range mine = is_of_heads ? TensorHeads(m, group.num_devices()).of(extent, group.device_id())
                                 : part(extent, group.num_devices(), group.device_id());
  p = Sharded<Axis>(group, c.slice(name, Axis, mine.begin, mine.end), global, mine.begin);
}
/// @}

}  // namespace shard::decoders
