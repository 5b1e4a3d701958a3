// expect: conversion from | no viable conversion | could not convert
// Cutting is a call: shard<0>.
#include "engine/layouts.hpp"

using namespace shard;

Sharded<0> cut(Replicated&& r) {
  return std::move(r);
}
