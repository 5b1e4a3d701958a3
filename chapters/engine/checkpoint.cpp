#include "engine/checkpoint.hpp"

#include <fmt/format.h>

namespace shard::checkpoint {

void refuse_unknown(const std::string& source, const std::string& name) {
  throw Error(Code::file, fmt::format("{}: expected a parameter {}, given none of that name", source, name));
}

void require_range(const std::string& name, const Shape& shape, int axis, Index begin, Index end) {
  if (axis < 0 || axis >= static_cast<int>(shape.size()) || begin < 0 || begin > end ||
      end > shape[static_cast<std::size_t>(axis)])
    refuse(Code::argument, "slice of " + name, "a range of an axis of " + to_string(shape),
           fmt::format("[{}, {}) of axis {}", begin, end, axis));
}

Tensor as_parameter(Shape shape, int axis, Index begin, Index end, const std::vector<float>& values) {
  shape[static_cast<std::size_t>(axis)] = end - begin;
  Tensor t = Tensor::from_host(std::move(shape), values);
  t.charge_to(Purpose::parameters);
  return t;
}

}  // namespace shard::checkpoint
