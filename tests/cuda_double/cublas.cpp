// Matrix products of the double, by a CBLAS.

#include <cblas.h>
#include <fmt/format.h>

#include "cublas_v2.h"
#include "double.hpp"

using namespace cuda_double;

struct cublasContext {
  cudaStream_t queue = nullptr;
};

const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "an error planted in the test double";
}

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  if (const int error = planted("cublasCreate")) return static_cast<cublasStatus_t>(error);
  *handle = new cublasContext;
  gained("cuBLAS handles", *handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  if (planted("cublasDestroy")) return CUBLAS_STATUS_SUCCESS;
  given_back("cuBLAS handles", handle, "cublasDestroy");
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t queue) {
  require_there("cuBLAS handles", handle, "cublasSetStream");
  handle->queue = queue;
  return CUBLAS_STATUS_SUCCESS;
}

namespace {

/// Bytes of a matrix of columns, of which each is `distance` behind the one before.
std::size_t bytes_of(std::int64_t rows, std::int64_t columns, std::int64_t distance, const char* name) {
  if (rows <= 0 || columns <= 0 || distance < rows)
    violation(fmt::format("cublasGemmEx_64: {} of {} rows and {} columns at a distance of {}", name, rows,
                          columns, distance));
  return static_cast<std::size_t>((columns - 1) * distance + rows) * sizeof(float);
}

}  // namespace

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t order_a, cublasOperation_t order_b,
                               std::int64_t m, std::int64_t n, std::int64_t k, const void* alpha,
                               const void* a, cudaDataType_t a_type, std::int64_t lda, const void* b,
                               cudaDataType_t b_type, std::int64_t ldb, const void* beta, void* c,
                               cudaDataType_t c_type, std::int64_t ldc, cublasComputeType_t,
                               cublasGemmAlgo_t) {
  if (const int error = planted("cublasGemmEx_64")) return static_cast<cublasStatus_t>(error);
  require_there("cuBLAS handles", handle, "cublasGemmEx_64");
  if (a_type != CUDA_R_32F || b_type != CUDA_R_32F || c_type != CUDA_R_32F)
    violation("cublasGemmEx_64: a type other than float32");
  const bool turn_a = order_a == CUBLAS_OP_T, turn_b = order_b == CUBLAS_OP_T;
  const std::vector<Access> accesses = {{a, bytes_of(turn_a ? k : m, turn_a ? m : k, lda, "a"), false},
                                        {b, bytes_of(turn_b ? n : k, turn_b ? k : n, ldb, "b"), false},
                                        {c, bytes_of(m, n, ldc, "c"), true}};
  const float factor = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  enqueue(handle->queue, "a matrix product", accesses, [=] {
    auto order = [](bool is_turned) { return is_turned ? CblasTrans : CblasNoTrans; };
    cblas_sgemm(CblasColMajor, order(turn_a), order(turn_b), static_cast<int>(m), static_cast<int>(n),
                static_cast<int>(k), factor, static_cast<float*>(kept_at(a)), static_cast<int>(lda),
                static_cast<float*>(kept_at(b)), static_cast<int>(ldb), keep, static_cast<float*>(kept_at(c)),
                static_cast<int>(ldc));
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}
