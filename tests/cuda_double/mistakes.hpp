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
/// Mistakes with communicators and groups.
extern const std::vector<Case> mistakes_in_groups;
/// Mistakes with several communicators: launches in different orders.
extern const std::vector<Case> mistakes_in_order;
/// Mistakes within cuda/, made by leaving out a call there. The double must accept the cases that are
/// correct.
extern const std::vector<Case> mistakes_in_library;

float* memory(std::size_t elements = 8);
cudaStream_t new_stream();
/// Fills a tensor of 8 elements with zeros.
void clear(float* data, cudaStream_t in);
