// expect: the mask is taken from a Partial, one addend of a sum: use what was reduced
// An activation that was not reduced.
#include "engine/layouts.hpp"

using namespace shard;

auto gradient(Replicated&& dh, const Partial& z) {
  return relu_backward(std::move(dh), z);
}
