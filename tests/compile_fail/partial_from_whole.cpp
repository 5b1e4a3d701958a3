// expect: conversion from | no viable conversion | could not convert
// The whole is no addend: it would count once per device.
#include "engine/layouts.hpp"

using namespace shard;

Partial claim(Replicated&& r) {
  return std::move(r);
}
