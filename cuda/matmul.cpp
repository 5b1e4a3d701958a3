/// The matrix product, by cuBLAS.

#include "backend/checks.hpp"
#include "backend/stream.hpp"
#include "cuda/check.hpp"
#include "cuda/gpu.hpp"
#include "cuda/memory.hpp"

namespace shard {

namespace {

cublasComputeType_t compute_type() {
  switch (cuda::gpu().precision()) {
    case cuda::Precision::tf32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case cuda::Precision::bf16:
      return CUBLAS_COMPUTE_32F_FAST_16BF;
    default:
      return CUBLAS_COMPUTE_32F;
  }
}

/// c = a b + keep c.
///
/// cuBLAS counts along columns first. Read so, our row-major matrices are their own transposes: cᵀ = bᵀ aᵀ.
void product(Operand a, Operand b, Tensor& c, Extents e, float keep) {
  backend::stream().advance();  // what has been agreed on meanwhile goes before us into its queue
  if (e.m == 0 || e.n == 0) return;
  if (e.k == 0) {  // an empty sum
    if (keep == 0)
      SHARDBOOK_CHECK(cudaMemsetAsync(Backend::data(c), 0, static_cast<std::size_t>(c.bytes()),
                                      cuda::gpu().computation()));
    return;
  }
  auto order = [](Operand o) { return o.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const float one = 1.0F;
  SHARDBOOK_CHECK(cublasGemmEx_64(cuda::gpu().blas(), order(b), order(a), e.n, e.m, e.k, &one,
                                  Backend::data(*b.tensor), CUDA_R_32F, b.tensor->extent(1),
                                  Backend::data(*a.tensor), CUDA_R_32F, a.tensor->extent(1), &keep,
                                  Backend::data(c), CUDA_R_32F, e.n, compute_type(), CUBLAS_GEMM_DEFAULT));
  ledger().computed(2 * e.m * e.n * e.k);
}

}  // namespace

Tensor matmul(Operand a, Operand b) {
  Extents e = extents_of_product(a, b);
  Tensor c = Backend::make({e.m, e.n});
  product(a, b, c, e, 0.0F);
  return c;
}

void matmul_accumulate(Operand a, Operand b, Tensor& c) {
  Extents e = extents_of_product(a, b);
  require_shape("matmul_accumulate", {e.m, e.n}, c);
  product(a, b, c, e, 1.0F);
}

}  // namespace shard
