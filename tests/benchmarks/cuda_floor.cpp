/// The floor of a chapter's step on a GPU: its calls of cuBLAS once more, with copies of what they
/// multiplied, and nothing else. What a device waits for others is in a step and not in its floor.

#include "cuda/gpu.hpp"
#include "cuda/success.hpp"
#include "engine/proof/costs.hpp"
#include "tests/benchmarks/backend.hpp"

namespace shard::bench {

namespace {

/// Memory of the GPU that no tensor knows.
class Memory {
 public:
  explicit Memory(std::size_t bytes) { SHARDBOOK_CHECK(cudaMalloc(&data_, bytes)); }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// A matrix of columns, and what was in it.
struct Matrix {
  std::unique_ptr<Memory> memory;
  cudaDataType_t type;
  std::int64_t distance;

  Matrix(const void* data, cudaDataType_t of_type, std::int64_t columns, std::int64_t far)
      : type(of_type), distance(far) {
    const auto bytes = static_cast<std::size_t>(columns * far) * (type == CUDA_R_16BF ? 2 : 4);
    memory = std::make_unique<Memory>(bytes);
    SHARDBOOK_CHECK(
        cudaMemcpyAsync(memory->data(), data, bytes, cudaMemcpyDeviceToDevice, cuda::gpu().computation()));
  }
};

/// A call of cublasGemmEx_64: c = a b + keep c, in columns.
struct Product {
  cublasOperation_t order_a, order_b;
  std::int64_t m, n, k;
  Matrix a, b, c;
  float keep;
  cublasComputeType_t compute;
};

std::vector<Product>* recorded = nullptr;  // while a step is recorded

class CudaFloor : public Floor {
 public:
  /// \throws Error internal when the ledger counted other products
  explicit CudaFloor(const std::function<void()>& step) {
    const Index flops_before = ledger().flops();
    recorded = &products_;
    step();
    recorded = nullptr;
    world().synchronize();
    Index flops = 0;
    for (const Product& p : products_) flops += product_flops(p.m, p.k, p.n);
    const Index computed = ledger().flops() - flops_before;
    if (flops != computed)
      refuse(Code::internal, "floor", fmt::format("{} operations", computed), fmt::to_string(flops));
  }
  void run() override;

 private:
  std::vector<Product> products_;
};

}  // namespace

std::unique_ptr<Floor> floor_of(const std::function<void()>& step) {
  return std::make_unique<CudaFloor>(step);
}

}  // namespace shard::bench

// The linker's --wrap: a call of NAME elsewhere goes to __wrap_NAME, and __real_NAME is what NAME was.
extern "C" {
cublasStatus_t __real_cublasGemmEx_64(cublasHandle_t, cublasOperation_t, cublasOperation_t, std::int64_t,
                                      std::int64_t, std::int64_t, const void*, const void*, cudaDataType_t,
                                      std::int64_t, const void*, cudaDataType_t, std::int64_t, const void*,
                                      void*, cudaDataType_t, std::int64_t, cublasComputeType_t,
                                      cublasGemmAlgo_t);

cublasStatus_t __wrap_cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t order_a,
                                      cublasOperation_t order_b, std::int64_t m, std::int64_t n,
                                      std::int64_t k, const void* alpha, const void* a, cudaDataType_t a_type,
                                      std::int64_t lda, const void* b, cudaDataType_t b_type,
                                      std::int64_t ldb, const void* beta, void* c, cudaDataType_t c_type,
                                      std::int64_t ldc, cublasComputeType_t compute,
                                      cublasGemmAlgo_t algorithm) {
  const cublasStatus_t status =
      __real_cublasGemmEx_64(handle, order_a, order_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta,
                             c, c_type, ldc, compute, algorithm);
  if (shard::bench::recorded == nullptr) return status;
  using shard::bench::Matrix;
  shard::bench::recorded->push_back({order_a, order_b, m, n, k,
                                     Matrix(a, a_type, order_a == CUBLAS_OP_T ? m : k, lda),
                                     Matrix(b, b_type, order_b == CUBLAS_OP_T ? k : n, ldb),
                                     Matrix(c, c_type, n, ldc), *static_cast<const float*>(beta), compute});
  return status;
}
}

void shard::bench::CudaFloor::run() {
  const float one = 1.0F;
  for (const Product& p : products_)
    SHARDBOOK_CHECK(__real_cublasGemmEx_64(cuda::gpu().blas(), p.order_a, p.order_b, p.m, p.n, p.k, &one,
                                           p.a.memory->data(), p.a.type, p.a.distance, p.b.memory->data(),
                                           p.b.type, p.b.distance, &p.keep, p.c.memory->data(), p.c.type,
                                           p.c.distance, p.compute, CUBLAS_GEMM_DEFAULT));
  world().synchronize();
}
