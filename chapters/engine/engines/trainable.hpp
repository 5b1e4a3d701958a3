#pragma once

#include <string>
#include <vector>

#include "engine/layouts/layouts.hpp"

namespace shard {

/// Rows of a parameter that the optimizer updates in place, by the gradient of the same name.
struct Trainable {
  std::string name;
  Rows parameter;
  Shape whole;    ///< the shape of the parameter, of which this device may hold a part
  Ranges ranges;  ///< which indices of the parameter these rows have
};

/// The indices of the whole tensor that this device's part covers.
template <Layout L>
Ranges ranges_of(const L& laid) {
  if constexpr (requires { laid.ranges(); }) {
    return laid.ranges();
  } else {
    Ranges ranges;
    for (Index extent : laid.global_shape()) ranges.push_back({0, extent});
    if constexpr (Slice<L>) {
      constexpr auto axis = static_cast<std::size_t>(axis_of<L>);
      ranges[axis] = {laid.offset(), laid.offset() + laid.local().shape()[axis]};
    }
    return ranges;
  }
}

/// What the optimizer updates on this device.
class Trainables : public std::vector<Trainable> {
 public:
  /// Adds all rows that this device holds of a parameter. Adds nothing if another device owns it.
  template <Layout L>
  void add(const std::string& name, L& parameter, SourceLine where = SourceLine::current()) {
    if constexpr (std::same_as<L, Owned>)
      if (!parameter.is_mine(where)) return;
    push_back({name, Rows(parameter.parameter(), where), parameter.global_shape(), ranges_of(parameter)});
  }

  /// Cuts the rows of each parameter into `parts` parts and returns the k-th part of each.
  Trainables slice(int parts, int k) && {
    for (Trainable& t : *this) {
      Range rows = shard::part(t.parameter.tensor->extent(0), parts, k);
      t.parameter = Rows(*t.parameter.tensor, rows.begin, rows.end);
      t.ranges[0] = {t.ranges[0].begin + rows.begin, t.ranges[0].begin + rows.end};
    }
    return std::move(*this);
  }
};

}  // namespace shard
