// expect: success
// The mistakes beside it are made of this.
#include "engine/device/device.hpp"

using namespace shard;

Tensor product(const Tensor& a, const Tensor& b) {
  return matmul(a, transposed(b));
}
