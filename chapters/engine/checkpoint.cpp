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

}  // namespace shard
