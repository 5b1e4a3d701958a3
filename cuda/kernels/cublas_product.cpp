/// The matrix product, by cuBLAS.

#include "cuda/gpu.hpp"
#include "cuda/gpu_memory.hpp"
#include "cuda/kernels/launch.hpp"
#include "cuda/kernels/rounding.hpp"
#include "cuda/success.hpp"
#include "engine/device/books/ledger.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

namespace {

using cuda::gpu;
using cuda::Team;

/// Rows of `columns` numbers, which begin `distance` numbers apart in the result, with zeros between them.
struct RowsToBf16 {
  Index columns, distance;

  SHARDBOOK_KERNEL void operator()(Index row, Index column, const float* from, std::uint16_t* to) const {
    to[row * distance + column] = column < columns ? bf16_of(from[row * columns + column]) : std::uint16_t{0};
  }
};

struct SumOfBf16 {
  Index addends, rows, columns, distance;

  SHARDBOOK_KERNEL static float addend(std::uint16_t upper) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(upper) << 16);
  }
  SHARDBOOK_KERNEL void operator()(Index row, Index column, const std::uint16_t* from, float* sums) const {
    const std::uint16_t* mine = from + row * distance + column;
    float sum = addend(*mine);
    for (Index a = 1; a < addends; ++a) sum += addend(mine[a * rows * distance]);
    sums[row * columns + column] = sum;
  }
};

/// Calls kernel(row, column, args...) for a part of a row. One division tells where the part lies, and none where an
/// element does.
template <class Kernel>
struct OfParts {
  static constexpr Index length = 512;
  Kernel kernel;
  Index parts, columns;  ///< of a row

  template <class... Args>
  SHARDBOOK_KERNEL void operator()(Team team, Index part, Args... args) const {
    const Index row = part / parts, begin = (part - row * parts) * length;
    const Index end = begin + length < columns ? begin + length : columns;
    for (Index column = begin + team.lane; column < end; column += Team::size) kernel(row, column, args...);
  }
};
template <class Kernel, class... Args>
void launch_parts(Kernel kernel, Index rows, Index columns, Args... args) {
  const Index parts = (columns + OfParts<Kernel>::length - 1) / OfParts<Kernel>::length;
  cuda::launch_rows(OfParts<Kernel>{kernel, parts, columns}, rows * parts, gpu().computation(), args...);
}

/// An operand of cuBLAS. For bf16 it is a rounded copy, since cuBLAS's own conversion from float32 is optional. The
/// tensor keeps it: most are factors of several products. An operand that is in bf16 needs none.
class Factor {
 public:
  explicit Factor(Operand o) : operand_(o) {
    if (precision() != Precision::bf16 || o.columns_in_bf16 > 0) return;
    const cuda::GpuStorage* const storage = cuda::storage(*o.tensor);
    if (const auto kept = cuda::copies_in_bf16().find(storage); kept != cuda::copies_in_bf16().end()) {
      in_bf16_ = kept->second;
      return;
    }
    const auto copy = std::make_shared<cuda::Workspace>(o.tensor->size() * 2);
    cuda::launch_elements(ToBf16(), o.tensor->size(), gpu().computation(), TensorMemory::data(*o.tensor),
                          copy->data<std::uint16_t>());
    cuda::copies_in_bf16()[storage] = in_bf16_ = copy;
  }
  const void* data() const {
    if (in_bf16_) return in_bf16_->data<std::uint16_t>();
    return TensorMemory::data(*operand_.tensor);
  }
  cublasOperation_t order() const { return operand_.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }
  /// The distance of rows, in numbers. A row in bf16 may end with half an element.
  Index row_length() const {
    return operand_.tensor->shape().back() * (operand_.columns_in_bf16 > 0 ? 2 : 1);
  }

 private:
  Operand operand_;
  std::shared_ptr<const cuda::Workspace> in_bf16_;
};

}  // namespace

/// cuBLAS's matrices are column-major. It reads a row-major matrix as its transpose, so it computes cᵀ = bᵀ aᵀ.
void product(Operand a, Operand b, Tensor& c, Extents e, float keep) {
  const Factor left(a), right(b);
  const cudaDataType_t type = precision() == Precision::bf16 ? CUDA_R_16BF : CUDA_R_32F;
  // Pedantic: float32 even if an environment variable allows less precision.
  const cublasComputeType_t compute = precision() == Precision::tf32   ? CUBLAS_COMPUTE_32F_FAST_TF32
                                      : precision() == Precision::bf16 ? CUBLAS_COMPUTE_32F
                                                                       : CUBLAS_COMPUTE_32F_PEDANTIC;
  const float one = 1.0F;
  cuda::stay_below_full_queue();
  if (e.count == 1)
    SHARDBOOK_CHECK(cublasGemmEx_64(gpu().blas(), right.order(), left.order(), e.n, e.m, e.k, &one,
                                    right.data(), type, right.row_length(), left.data(), type,
                                    left.row_length(), &keep, TensorMemory::data(c), CUDA_R_32F, e.n, compute,
                                    CUBLAS_GEMM_DEFAULT));
  else
    SHARDBOOK_CHECK(cublasGemmStridedBatchedEx_64(
        gpu().blas(), right.order(), left.order(), e.n, e.m, e.k, &one, right.data(), type,
        right.row_length(), e.k * e.n, left.data(), type, left.row_length(), e.m * e.k, &keep,
        TensorMemory::data(c), CUDA_R_32F, e.n, e.m * e.n, e.count, compute, CUBLAS_GEMM_DEFAULT));
}

void to_bf16(const Tensor& matrix, Tensor& pairs) {
  const Index distance = 2 * pairs.extent(1);
  launch_parts(RowsToBf16{matrix.extent(1), distance}, matrix.extent(0), distance, TensorMemory::data(matrix),
               reinterpret_cast<std::uint16_t*>(TensorMemory::data(pairs)));
}

void sum_of_bf16(const Tensor& pairs, Tensor& sums) {
  const Index rows = sums.extent(0), columns = sums.extent(1);
  launch_parts(SumOfBf16{pairs.extent(0) / rows, rows, columns, 2 * pairs.extent(1)}, rows, columns,
               reinterpret_cast<const std::uint16_t*>(TensorMemory::data(pairs)), TensorMemory::data(sums));
}

}  // namespace shard::kernels
