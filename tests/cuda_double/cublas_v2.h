#pragma once

/// A test double of those functions of cuBLAS that cuda/ uses; see cuda_runtime.h here.

#include "cuda_runtime.h"

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_EXECUTION_FAILED = 13
};
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasComputeType_t {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_PEDANTIC = 69,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
using cublasHandle_t = struct cublasContext*;

extern "C" {
const char* cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t order_a, cublasOperation_t order_b,
                               std::int64_t m, std::int64_t n, std::int64_t k, const void* alpha,
                               const void* a, cudaDataType_t a_type, std::int64_t lda, const void* b,
                               cudaDataType_t b_type, std::int64_t ldb, const void* beta, void* c,
                               cudaDataType_t c_type, std::int64_t ldc, cublasComputeType_t compute,
                               cublasGemmAlgo_t algorithm);
cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t order_a, cublasOperation_t order_b, std::int64_t m,
    std::int64_t n, std::int64_t k, const void* alpha, const void* a, cudaDataType_t a_type, std::int64_t lda,
    std::int64_t a_stride, const void* b, cudaDataType_t b_type, std::int64_t ldb, std::int64_t b_stride,
    const void* beta, void* c, cudaDataType_t c_type, std::int64_t ldc, std::int64_t c_stride,
    std::int64_t count, cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
}
