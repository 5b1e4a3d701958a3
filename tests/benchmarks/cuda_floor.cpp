/// The floor of a chapter's step on a GPU: only its products, by cuBLAS, on copies of their operands. The
/// floor has no waiting for other devices.

#include <cstring>

#include "cuda/gpu.hpp"
#include "cuda/gpu_memory.hpp"
#include "cuda/success.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/device/runtime/operations/argument_checks.hpp"
#include "engine/proof/costs.hpp"
#include "tests/benchmarks/backend.hpp"

namespace shard::bench {

namespace {

/// The bf16 part of each number: the upper 16 of its 32 bits. Two of them lie in the memory of one float.
Tensor cut_to_bf16(const Tensor& t) {
  const std::vector<float> numbers = t.to_host();
  std::vector<float> pairs((numbers.size() + 1) / 2);
  auto* to = reinterpret_cast<char*>(pairs.data());
  for (const float& x : numbers) {  // of a little-endian machine
    std::memcpy(to, reinterpret_cast<const char*>(&x) + 2, 2);
    to += 2;
  }
  return Tensor::from_host({static_cast<Index>(pairs.size())}, pairs);
}

/// A copy of a product's operand, in the format that cuBLAS reads.
struct Factor {
  Tensor numbers;
  cudaDataType_t type;
  cublasOperation_t order;
  Index row_length;

  explicit Factor(Operand o)
      : numbers(o.tensor->clone()),
        type(o.columns_in_bf16 > 0 ? CUDA_R_16BF : CUDA_R_32F),
        order(o.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N),
        row_length(o.tensor->shape().back() * (o.columns_in_bf16 > 0 ? 2 : 1)) {}
  void make_bf16() {
    if (type == CUDA_R_16BF) return;
    numbers = cut_to_bf16(numbers);
    type = CUDA_R_16BF;
  }
  const float* data() const { return TensorMemory::data(numbers); }
};

/// c = a b + keep c, in row-major order.
struct Product {
  Extents extents;
  Factor a, b;
  Tensor c;
  float keep;
};

class CudaFloor : public Floor {
 public:
  /// With products in the current precision().
  CudaFloor(Communicator& group, std::vector<Product> products)
      : group_(group), products_(std::move(products)) {
    if (precision() == Precision::tf32) compute_ = CUBLAS_COMPUTE_32F_FAST_TF32;
    if (precision() != Precision::bf16) return;
    for (Product& p : products_) {
      p.a.make_bf16();
      p.b.make_bf16();
    }
  }

  /// cuBLAS stores by columns, so it computes cᵀ = bᵀ aᵀ.
  void run() override {
    const float one = 1.0F;
    for (Product& p : products_) {
      const Extents e = p.extents;
      SHARDBOOK_CHECK(cublasGemmStridedBatchedEx_64(
          cuda::gpu().blas(), p.b.order, p.a.order, e.n, e.m, e.k, &one, p.b.data(), p.b.type, p.b.row_length,
          e.k * e.n, p.a.data(), p.a.type, p.a.row_length, e.m * e.k, &p.keep, TensorMemory::data(p.c),
          CUDA_R_32F, e.n, e.m * e.n, e.count, compute_, CUBLAS_GEMM_DEFAULT));
    }
    group_.synchronize();
  }

 private:
  Communicator& group_;
  std::vector<Product> products_;
  cublasComputeType_t compute_ = CUBLAS_COMPUTE_32F;
};

/// Floors on GPUs have no messages, so calls are not recorded.
class CudaRecorder : public Recorder, private Observer {
 public:
  explicit CudaRecorder(Communicator& group) : group_(group) {}

  Communicator& group() override { return group_; }

  /// \throws Error internal when the ledger counted other products
  std::unique_ptr<Floor> floor_of(const std::function<void()>& step) override {
    products_.clear();
    const Index flops_before = ledger().flops();
    {
      const Observation observation(*this);
      step();
    }
    group_.synchronize();
    Index flops = 0;
    for (const Product& p : products_)
      flops += p.extents.count * product_flops(p.extents.m, p.extents.k, p.extents.n);
    const Index computed = ledger().flops() - flops_before;
    if (flops != computed)
      refuse(Code::internal, "floor", fmt::format("{} operations", computed), fmt::to_string(flops));
    return std::make_unique<CudaFloor>(group_, std::move(products_));
  }

 private:
  void product(Operand a, Operand b, const Tensor& c, bool accumulates) override {
    products_.push_back({extents_of_product(a, b), Factor(a), Factor(b),
                         accumulates ? c.clone() : Tensor::uninitialized(c.shape()),
                         accumulates ? 1.0F : 0.0F});
  }

  Communicator& group_;
  std::vector<Product> products_;
};

}  // namespace

std::unique_ptr<Recorder> make_recorder(Communicator& group) {
  return std::make_unique<CudaRecorder>(group);
}

}  // namespace shard::bench
