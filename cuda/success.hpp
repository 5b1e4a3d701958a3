#pragma once

/// Every call into CUDA, cuBLAS and NCCL is checked. An error names the call, file and line.

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <nccl.h>

namespace shard::cuda {

/// \throws Error lost when a peer or the connection to it is lost, internal for any other failure.
void check(cudaError_t result, const char* call, const char* file, int line);
void check(cublasStatus_t result, const char* call, const char* file, int line);
void check(ncclResult_t result, const char* call, const char* file, int line);

}  // namespace shard::cuda

#define SHARDBOOK_CHECK(call) ::shard::cuda::check((call), #call, __FILE__, __LINE__)
