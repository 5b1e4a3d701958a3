// Matrix products of the double, by the library that makes those of devices on the CPU.

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "cublas_v2.h"
#include "double.hpp"
#include "emu/products/products.hpp"

using namespace cuda_double;

struct cublasContext {
  cudaStream_t stream = nullptr;
};

const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "an error planted in the test double";
}

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  if (const int error = planted("cublasCreate")) return static_cast<cublasStatus_t>(error);
  wait_for_gpu("cublasCreate");
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

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  require_there("cuBLAS handles", handle, "cublasSetStream");
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

namespace {

/// Matrices stored by columns, which begin `distance` elements apart. The matrices begin `stride` elements apart.
struct Matrices {
  const void* data;
  cudaDataType_t type;
  std::int64_t distance, stride;
  std::size_t elements;  // from the first one's first to the last one's last

  Matrices(const char* name, const void* at, cudaDataType_t of_type, std::int64_t rows, std::int64_t columns,
           std::int64_t far, std::int64_t apart, std::int64_t count)
      : data(at),
        type(of_type),
        distance(far),
        stride(apart),
        elements(static_cast<std::size_t>((count - 1) * apart + (columns - 1) * far + rows)) {
    if (rows <= 0 || columns <= 0 || far < rows || count <= 0)
      violation(fmt::format("cublasGemmEx_64: {} of {} rows and {} columns at a distance of {}", name, rows,
                            columns, far));
  }
  Access access(bool is_write) const {
    return {data, elements * (type == CUDA_R_16BF ? 2 : sizeof(float)), is_write};
  }

  /// The elements as float32, of which tf32 keeps 10 fraction bits. (NVIDIA does not document how a GPU
  /// rounds.)
  std::vector<float> values(bool in_tf32) const {
    std::vector<float> all(elements);
    for (std::size_t i = 0; i < elements; ++i) {
      std::uint32_t bits = type == CUDA_R_16BF
                               ? std::uint32_t{static_cast<const std::uint16_t*>(kept_at(data))[i]} << 16
                               : static_cast<const std::uint32_t*>(kept_at(data))[i];
      if (in_tf32) bits &= 0xffffe000U;
      std::memcpy(&all[i], &bits, sizeof bits);
    }
    return all;
  }
};

}  // namespace

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t order_a, cublasOperation_t order_b, std::int64_t m,
    std::int64_t n, std::int64_t k, const void* alpha, const void* a_data, cudaDataType_t a_type,
    std::int64_t lda, std::int64_t a_stride, const void* b_data, cudaDataType_t b_type, std::int64_t ldb,
    std::int64_t b_stride, const void* beta, void* c_data, cudaDataType_t c_type, std::int64_t ldc,
    std::int64_t c_stride, std::int64_t count, cublasComputeType_t compute, cublasGemmAlgo_t) {
  if (const int error = planted("cublasGemmEx_64")) return static_cast<cublasStatus_t>(error);
  require_there("cuBLAS handles", handle, "cublasGemmEx_64");
  if ((a_type != CUDA_R_32F && a_type != CUDA_R_16BF) || b_type != a_type || c_type != CUDA_R_32F)
    violation("cublasGemmEx_64: types other than float32, and bf16 of both factors");
  const bool turn_a = order_a == CUBLAS_OP_T, turn_b = order_b == CUBLAS_OP_T;
  const Matrices a("a", a_data, a_type, turn_a ? k : m, turn_a ? m : k, lda, a_stride, count);
  const Matrices b("b", b_data, b_type, turn_b ? n : k, turn_b ? k : n, ldb, b_stride, count);
  const Matrices c("c", c_data, c_type, m, n, ldc, c_stride, count);
  const float factor = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  if (factor != 1 || ldc != m)
    violation("cublasGemmEx_64: a factor, or a result with gaps between its columns");
  const char* anyway = std::getenv("NVIDIA_TF32_OVERRIDE");
  const bool in_tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                       (compute == CUBLAS_COMPUTE_32F && anyway != nullptr && std::atoi(anyway) != 0);
  add_work(handle->stream, "a matrix product", {a.access(false), b.access(false), c.access(true)}, [=] {
    const std::vector<float> left = a.values(in_tf32), right = b.values(in_tf32);
    // By columns, c = a b has the memory of cᵀ = bᵀ aᵀ by rows.
    for (std::int64_t i = 0; i < count; ++i)
      shard::emu::multiply({turn_b, turn_a, static_cast<int>(n), static_cast<int>(m), static_cast<int>(k),
                            right.data() + i * b.stride, static_cast<int>(ldb), left.data() + i * a.stride,
                            static_cast<int>(lda), keep,
                            static_cast<float*>(kept_at(c.data)) + i * c.stride});
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t order_a, cublasOperation_t order_b,
                               std::int64_t m, std::int64_t n, std::int64_t k, const void* alpha,
                               const void* a, cudaDataType_t a_type, std::int64_t lda, const void* b,
                               cudaDataType_t b_type, std::int64_t ldb, const void* beta, void* c,
                               cudaDataType_t c_type, std::int64_t ldc, cublasComputeType_t compute,
                               cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(handle, order_a, order_b, m, n, k, alpha, a, a_type, lda, 0, b, b_type,
                                       ldb, 0, beta, c, c_type, ldc, 0, 1, compute, algorithm);
}
