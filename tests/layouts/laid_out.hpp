#pragma once

/// Lays whole matrices out on the devices, and puts them together again, for the tests of layouts.

#include "tests/harness/devices.hpp"

namespace shard::testing {

/// The cut of an axis: a range for each device.
using Cut = std::vector<Range>;

/// The cut by the rule of split.hpp.
inline Cut even_cut(Index extent) {
  Cut cut;
  for (int d = 0; d < group().num_devices(); ++d) cut.push_back(part(extent, group().num_devices(), d));
  return cut;
}
/// A cut with growing slices, the first of which are often empty.
inline Cut uneven_cut(Index extent) {
  const Index n = group().num_devices();
  Cut cut;
  for (Index d = 0; d < n; ++d)
    cut.push_back({extent * d * d / (n * n), extent * (d + 1) * (d + 1) / (n * n)});
  return cut;
}
inline Range mine(const Cut& cut) {
  return cut[static_cast<std::size_t>(group().device_id())];
}

/// Where a sharded tensor is cut, and which device owns an owned one.
struct Places {
  Cut cut;
  int owner = 0;
};

/// This device's addend of `whole`: random integers; the last device has the rest.
inline HostTensor addend(const HostTensor& whole) {
  const std::vector<HostTensor> random = on_each(integers, whole.shape, 17);
  const auto me = static_cast<std::size_t>(group().device_id());
  if (me + 1 < random.size()) return random[me];
  HostTensor rest = whole;
  for (std::size_t d = 0; d + 1 < random.size(); ++d)
    for (std::size_t i = 0; i < rest.values.size(); ++i) rest.values[i] -= random[d].values[i];
  return rest;
}

/// This device's part of `whole`, in layout L.
template <class L>
L laid_out(const HostTensor& whole, const Places& places) {
  if constexpr (std::same_as<L, Replicated>) {
    return Replicated(group(), to_device(whole));
  } else if constexpr (std::same_as<L, Partial>) {
    return Partial(group(), to_device(addend(whole)));
  } else if constexpr (std::same_as<L, Owned>) {
    const bool is_mine = places.owner == group().device_id();
    return Owned(group(), is_mine ? to_device(whole) : Tensor(), whole.shape, places.owner);
  } else {
    constexpr int axis = axis_of<L>;
    const Range range = mine(places.cut);
    return L(group(), to_device(sliced(whole, axis, range)), whole.shape, range.begin);
  }
}

/// The whole tensor of all devices' parts, on every device.
inline Tensor whole_of(PlainEngine&, Replicated&& r) {
  return std::move(r).local();
}
inline Tensor whole_of(PlainEngine& engine, Partial&& p) {
  return engine.all_reduce(std::move(p)).local().clone();
}
inline Tensor whole_of(PlainEngine& engine, Owned&& o) {
  return engine.broadcast(std::move(o)).local().clone();
}
template <int Axis>
Tensor whole_of(PlainEngine& engine, Sharded<Axis>&& s) {
  return engine.all_gather(std::move(s)).local().clone();
}

}  // namespace shard::testing
