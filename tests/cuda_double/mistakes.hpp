#pragma once

/// Mistakes with CUDA, cuBLAS and NCCL, by name. The test double must end a program that makes one.

#include <cuda_runtime.h>

#include "tests/harness/cases.hpp"
#include "tests/harness/devices.hpp"

using shard::testing::Case;
using shard::testing::group;
using shard::testing::Where;

/// With memory, queues and events.
extern const std::vector<Case> mistakes_in_queues;
/// With communicators and groups.
extern const std::vector<Case> mistakes_in_groups;
/// With several communicators: launches in different orders.
extern const std::vector<Case> mistakes_in_order;
/// Within cuda/, by leaving out a call there. And what is no mistake at all.
extern const std::vector<Case> mistakes_in_library;

float* memory(std::size_t elements = 8);
cudaStream_t queue();
/// Of 8 elements.
void clear(float* data, cudaStream_t in);
