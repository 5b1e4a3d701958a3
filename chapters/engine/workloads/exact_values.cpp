#include "engine/workloads/exact_values.hpp"

namespace shard::exact {

HostTensor integers(Shape shape, const CounterRandom& random, int low, int high, float scale) {
  HostTensor t{shape, {}};
  for (Index i = 0; i < num_elements(shape); ++i)
    t.values.push_back(scale * static_cast<float>(random.integer(static_cast<std::uint64_t>(i), low, high)));
  return t;
}

HostTensor sparse_signs(Shape shape, const CounterRandom& random) {
  HostTensor t{shape, std::vector<float>(static_cast<std::size_t>(num_elements(shape)))};
  for (Index column = 0; column < shape[1]; ++column)
    for (Index entry = 0; entry < 2; ++entry) {
      auto draw = static_cast<std::uint64_t>(4 * column + 2 * entry);
      Index row = random.integer(draw, 0, static_cast<int>(shape[0]) - 1);
      t.values[static_cast<std::size_t>(row * shape[1] + column)] =
          random.integer(draw + 1, 0, 1) == 0 ? -1.0F : 1.0F;
    }
  return t;
}

}  // namespace shard::exact
