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
  /// All rows that this device has of a parameter; nothing of one that another device owns.
  template <Layout L>
  void add(const std::string& name, L& parameter) {
    if constexpr (std::same_as<L, Owned>)
      if (!parameter.is_mine()) return;
    push_back({name, Rows(parameter.parameter())});
  }

  /// Of each parameter, the k-th of `parts` parts of its rows.
  Trainables part(int parts, int k) && {
    for (Trainable& t : *this) {
      Range rows = shard::part(t.parameter.tensor->extent(0), parts, k);
      t.parameter = Rows(*t.parameter.tensor, rows.begin, rows.end);
    }
    return std::move(*this);
  }
};

}  // namespace shard
