// expect: P·P has no product, as a product of sums is no sum of products: all_reduce(std::move(a)) makes it R·P = P
// A product of sums is not the sum of the products.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Partial& a, const Partial& b) {
  return matmul(a, b);
}
