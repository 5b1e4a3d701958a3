#pragma once

#include <string>
#include <vector>

#include "engine/layouts.hpp"

namespace shard {

/// Rows of a parameter that the optimizer updates in place, by the gradient of the same name.
struct Trainable {
  std::string name;
  Rows parameter;
};

/// What the optimizer updates on this device.
class Trainables : public std::vector<Trainable> {
 public:
  /// Adds all rows that this device holds of a parameter. Adds nothing if another device owns it.
  template <Layout L>
  void add(const std::string& name, L& parameter, SourceLine where = SourceLine::current()) {
    if constexpr (std::same_as<L, Owned>)
      if (!parameter.is_mine(where)) return;
    push_back({name, Rows(parameter.parameter(), where)});
  }

  /// Cuts the rows of each parameter into `parts` parts and returns the k-th part of each.
  Trainables part(int parts, int k) && {
    for (Trainable& t : *this) {
      Range rows = shard::part(t.parameter.tensor->extent(0), parts, k);
      t.parameter = Rows(*t.parameter.tensor, rows.begin, rows.end);
    }
    return std::move(*this);
  }
};

}  // namespace shard
