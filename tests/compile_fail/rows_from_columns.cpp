// expect: conversion from | no viable conversion | could not convert
// The product is columns, not rows.
#include "engine/layouts.hpp"

using namespace shard;

void product(const Replicated& x, const Sharded<1>& w) {
  Sharded<0> z = matmul(x, w);
}
