#pragma once

#include <string>
#include <vector>

#include "engine/layouts.hpp"
#include "engine/workloads/model.hpp"

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

/// The weights of layers 0, 1, ...
template <Layout L>
Trainables layers(std::vector<L>& weights) {
  Trainables all;
  for (std::size_t l = 0; l < weights.size(); ++l) all.add(layer_name(static_cast<Index>(l)), weights[l]);
  return all;
}

/// The weights of layers 0, 1, ... in blocks of several: `layers(blocks, &Block::w0, &Block::w1)`.
template <class Block, Layout... L>
Trainables layers(std::vector<Block>& blocks, L Block::*... weights) {
  Trainables all;
  Index l = 0;
  for (Block& block : blocks) (all.add(layer_name(l++), block.*weights), ...);
  return all;
}

}  // namespace shard
