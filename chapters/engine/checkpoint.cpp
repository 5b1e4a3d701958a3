#include "engine/checkpoint.hpp"

#include <fmt/format.h>

namespace shard {

void checkpoint::refuse_unknown(const std::string& source, const std::string& name) {
  throw Error(Code::file, fmt::format("{}: expected a parameter {}, given none of that name", source, name));
}

std::vector<float> Checkpoint::read(const std::string& name, int axis, Index begin, Index end) const {
  const Shape whole = shape(name);
  if (axis < 0 || axis >= static_cast<int>(whole.size()) || begin < 0 || begin > end ||
      end > whole[static_cast<std::size_t>(axis)])
    refuse(Code::argument, "slice of " + name, "a range of an axis of " + to_string(whole),
           fmt::format("[{}, {}) of axis {}", begin, end, axis));
  return values(name, axis, begin, end);
}

Tensor Checkpoint::slice(const std::string& name, int axis, Index begin, Index end) const {
  const std::vector<float> values = read(name, axis, begin, end);
  Shape mine = shape(name);
  mine[static_cast<std::size_t>(axis)] = end - begin;
  Tensor t = Tensor::from_host(std::move(mine), values);
  t.charge_to(Purpose::parameters);
  return t;
}

Tensor Checkpoint::part(const std::string& name, const std::vector<Range>& ranges) const {
  const Shape whole = shape(name);
  int read = 0;  // the dimension along which a slice is read
  auto is_cut = [&](int d) {
    return ranges.at(static_cast<std::size_t>(d)) != Range{0, whole[static_cast<std::size_t>(d)]};
  };
  const int rank = static_cast<int>(whole.size());
  while (read + 1 < rank && !is_cut(read)) ++read;
  auto [begin, end] = ranges.at(static_cast<std::size_t>(read));
  Tensor mine = slice(name, read, begin, end);
  for (int d = read + 1; d < rank; ++d) {
    if (!is_cut(d)) continue;
    mine = shard::slice(mine, d, ranges[static_cast<std::size_t>(d)].begin,
                        ranges[static_cast<std::size_t>(d)].end);
    mine.charge_to(Purpose::parameters);
  }
  return mine;
}

}  // namespace shard
