// expect: conversion from | no viable conversion | could not convert
// Only a reduction makes addends whole.
#include "engine/layouts.hpp"

using namespace shard;

Replicated finish(Partial&& p) {
  return std::move(p);
}
