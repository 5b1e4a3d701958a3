#pragma once

/// Mistakes with CUDA, cuBLAS and NCCL, by name. The test double must end a program that makes one.

#include <cuda_runtime.h>

#include "tests/harness/cases.hpp"
#include "tests/harness/devices.hpp"

using shard::testing::Case;
using shard::testing::group;
using shard::testing::me;
using shard::testing::Where;

/// Mistakes with memory, streams and events.
extern const std::vector<Case> mistakes_in_streams;
/// Mistakes with communicators and groups, and with launches of several communicators.
extern const std::vector<Case> mistakes_in_groups;
/// Mistakes within cuda/, made by leaving out a call there. The double must accept the cases that are
/// correct.
extern const std::vector<Case> mistakes_in_library;

/// A mistake that the double ends with this part of an error, on this number of devices.
inline Case caught(std::string name, int devices, std::string says, shard::testing::Body body) {
  return {std::move(name), {devices}, 70, {std::move(says)}, std::move(body)};
}
/// A program that the double lets end.
inline Case accepted(std::string name, int devices, shard::testing::Body body) {
  return {std::move(name), {devices}, 0, {}, std::move(body)};
}

float* memory(std::size_t elements = 8);
cudaStream_t new_stream();
/// Fills a tensor of 8 elements with zeros.
void clear(float* data, cudaStream_t in);
