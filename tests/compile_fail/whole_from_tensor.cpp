// expect: conversion from | no viable conversion | could not convert
// That a tensor is the same everywhere is a claim, and is written out: Replicated(group, std::move(t)).
#include "engine/layouts.hpp"

using namespace shard;

Replicated claim(Tensor&& t) {
  return std::move(t);
}
