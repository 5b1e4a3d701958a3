#pragma once

/// Where blocks are divided: which blocks each device has, and the sums of their gradients.

#include <fmt/format.h>

#include <map>

#include "engine/device/error.hpp"
#include "engine/engines/sharded_engine.hpp"
#include "engine/schedules/cuts.hpp"

namespace shard::decoders {

/// Cuts blocks into as many contiguous parts as there are devices. `elements`: of the parameters that lie
/// with each block. `how` is one of these:
///   even    as many blocks for each device; if there is a rest, one more for each of the first devices
///   bytes   so that the largest part's parameters take as few bytes as possible
///   3,1,1   these numbers of blocks
/// \throws Error usage when there are fewer blocks than devices, or the list does not fit
inline std::vector<Range> split_blocks(const std::vector<Index>& elements, int devices,
                                       const std::string& how) {
  const auto num_blocks = static_cast<Index>(elements.size());
  if (num_blocks < devices)
    throw Error(Code::usage,
                fmt::format("layers: expected at least as many blocks as devices, {}, given {} blocks",
                            devices, num_blocks));
  if (how == "bytes") return cut_by_cost(elements, devices);
  if (how != "even") return cut_by_list(how, num_blocks, devices, "blocks", "--split", "even, bytes");
  std::vector<Range> parts;
  for (int d = 0; d < devices; ++d) parts.push_back(part(num_blocks, devices, d));
  return parts;
}
/// The number of elements of all parameters whose names begin with `name`.
template <class Model>
Index elements_of(const Model& m, const std::string& name) {
  Index elements = 0;
  for (const Parameter& p : m.parameters())
    if (p.name.starts_with(name)) elements += num_elements(p.shape);
  return elements;
}

/// The gradients of what a device owns, summed over the micro-batches, by name.
using OwnedSums = std::map<std::string, Owned>;
/// All gradients, also those of other devices: of these, shape and owner.
template <class Model, class AnyWeights>
Gradients gradients_of(const Model& m, AnyWeights& w, OwnedSums& sums) {
  Gradients gradients;
  for_each_parameter(m, w, [&](const std::string& name, const Owned& p) {
    gradients.put(
        name, p.is_mine() ? std::move(sums[name]) : Owned(p.group(), Tensor(), p.global_shape(), p.owner()));
  });
  return gradients;
}

}  // namespace shard::decoders
