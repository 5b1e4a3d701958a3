#pragma once

/// What came out of all scenes, as a table.

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <vector>

#include "scene.hpp"

namespace shard::primer {

inline bool all_right(const std::vector<Outcome>& outcomes) {
  return std::ranges::all_of(outcomes, [](const Outcome& o) { return o.is_right; });
}

/// One line a scene: what all devices together sent.
inline void print_table(const std::vector<Outcome>& outcomes) {
  auto sum = [](const std::vector<Index>& v) { return std::accumulate(v.begin(), v.end(), Index{0}); };
  fmt::print("sent by all devices     messages  closed form     bytes  closed form\n");
  for (const Outcome& o : outcomes)
    fmt::print("{:22}{:>10}{:>13}{:>10}{:>13}   {}\n", o.name, sum(o.messages.measured),
               sum(o.messages.formula), sum(o.bytes.measured), sum(o.bytes.formula),
               o.is_right ? "ok" : "DIFFERS");
  if (!all_right(outcomes)) fmt::print("a value or a figure above is not what it should be\n");
}

}  // namespace shard::primer
