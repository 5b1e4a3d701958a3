#pragma once

/// Mistakes with CUDA, cuBLAS and NCCL, by name. The test double must end a program that makes one.

#include <cuda_runtime.h>

#include <map>
#include <string>

#include "tests/harness/devices.hpp"

using shard::testing::group;

using Cases = std::map<std::string, std::function<void()>>;

/// With memory, queues and events.
extern const Cases mistakes_in_queues;
/// With communicators and groups.
extern const Cases mistakes_in_groups;
/// With several communicators: launches in different orders.
extern const Cases mistakes_in_order;
/// Within cuda/, by leaving out a call there. And what is no mistake at all.
extern const Cases mistakes_in_library;
/// The same, of calls that are made before the group is there.
extern const Cases mistakes_at_start;

float* memory(std::size_t elements = 8);
cudaStream_t queue();
/// Of 8 elements.
void clear(float* data, cudaStream_t in);
