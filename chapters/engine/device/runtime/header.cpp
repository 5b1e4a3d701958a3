#include "engine/device/runtime/header.hpp"

#include <fmt/format.h>

#include <bit>

namespace shard::runtime {

namespace {

/// Mixes a number into a hash (the finalizer of splitmix64: Steele, Lea and Flood 2014).
std::uint64_t mixed(std::uint64_t hash, std::uint64_t number) {
  hash += 0x9e3779b97f4a7c15U + number;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9U;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebU;
  return hash ^ (hash >> 31);
}

}  // namespace

std::string Header::describe(const std::vector<int>& members) const {
  if (collective == no_call) return name();
  const auto call_made = static_cast<Collective>(collective);
  const std::string text = name();
  const std::string_view op_name = shard::name(static_cast<ReduceOp>(op));
  switch (call_made) {
    case Collective::all_reduce:
      return text + fmt::format("({}) of {}", op_name, to_string(shape));
    case Collective::reduce_scatter:
      return text + fmt::format("({}) of {} along axis {}", op_name, to_string(shape), axis);
    case Collective::all_gather:
      return text + fmt::format(" of {} along axis {}", to_string(shape), axis);
    case Collective::all_to_all:
      return text + fmt::format(" of {} from axis {} to axis {}", to_string(shape), axis, concat_axis);
    case Collective::broadcast:
      return text + fmt::format(" from device {}", members[static_cast<std::size_t>(root)]);
    default:
      return text;
  }
}

std::string Header::name() const {
  if (collective == no_call) return what;
  return std::string(shard::name(static_cast<Collective>(collective)));
}

std::string Header::place() const {
  return place_of_call(call, where);
}

std::string place_of_call(Index number, SourceLine where) {
  return where.is_known() ? fmt::format("call {} at {}", number, to_string(where))
                          : fmt::format("call {}", number);
}

Index fingerprint(const Header& header, MayDiffer difference) {
  std::uint64_t hash = 0;
  for (Index number : {header.collective, header.op, header.axis, header.concat_axis, header.root})
    hash = mixed(hash, static_cast<std::uint64_t>(number));
  hash = mixed(hash, std::hash<std::string>()(header.what));
  if (difference.axis != MayDiffer::all().axis) {
    hash = mixed(hash, header.shape.size());
    for (std::size_t i = 0; i < header.shape.size(); ++i)
      if (static_cast<int>(i) != difference.axis)
        hash = mixed(hash, static_cast<std::uint64_t>(header.shape[i]));
  }
  return std::bit_cast<Index>(hash);
}

}  // namespace shard::runtime
