// expect: use of deleted function | deleted constructor | implicitly-deleted copy constructor
// Copies are made by clone(), never silently.
#include "engine/layouts.hpp"

using namespace shard;

Tensor copy(const Tensor& t) {
  return t;
}
