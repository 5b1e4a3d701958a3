#include "engine/device/books/figures.hpp"

#include <algorithm>

namespace shard {

Index Figure::largest() const {
  return measured.empty() ? 0 : *std::ranges::max_element(measured);
}

Figure gather_figure(Communicator& group, const char* what, Index measured, std::optional<Index> formula) {
  Figure figure{group.exchange(what, measured)};
  if (formula) figure.formula = group.exchange(what, *formula);
  return figure;
}

}  // namespace shard
