// expect: a Partial and a reduced tensor cannot be added, as the reduced one would count once per device
// A bias added to each addend counts once per device.
#include "engine/layouts.hpp"

using namespace shard;

auto sum(Partial&& out, const Replicated& bias) {
  return std::move(out) + bias;
}
