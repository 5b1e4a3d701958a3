// expect: these layouts have no product without communication
// A product of sums is not the sum of the products.
#include "engine/layouts.hpp"

using namespace shard;

auto product(const Partial& a, const Partial& b) {
  return matmul(a, b);
}
