/// Elementwise operations and reductions, one kernel each.

#include <numeric>

#include "cuda/gpu.hpp"
#include "cuda/gpu_slices.hpp"
#include "cuda/kernels/launch.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard::kernels {

namespace {

using cuda::gpu;
using cuda::launch_elements;
using cuda::Team;

struct Relu {
  // NaN stays NaN.
  SHARDBOOK_KERNEL void operator()(Index i, const float* z, float* h) const { h[i] = z[i] <= 0 ? 0 : z[i]; }
};
struct ReluBackward {
  SHARDBOOK_KERNEL void operator()(Index i, float* dh, const float* z) const {
    dh[i] = z[i] <= 0 ? 0 : dh[i];
  }
};
struct Add {
  SHARDBOOK_KERNEL void operator()(Index i, float* a, const float* b) const { a[i] += b[i]; }
};
struct Subtract {
  SHARDBOOK_KERNEL void operator()(Index i, float* a, const float* b) const { a[i] -= b[i]; }
};
struct Multiply {
  SHARDBOOK_KERNEL void operator()(Index i, float* a, const float* b) const { a[i] *= b[i]; }
};
struct Scale {
  SHARDBOOK_KERNEL void operator()(Index i, float* a, float factor) const { a[i] *= factor; }
};
struct Divide {
  SHARDBOOK_KERNEL void operator()(Index i, float* a, float divisor) const { a[i] /= divisor; }
};
struct ScaledDifference {
  SHARDBOOK_KERNEL void operator()(Index i, const float* output, float* target, float factor) const {
    target[i] = factor * (output[i] - target[i]);
  }
};

/// Reductions. Each of L teams reduces every L-th piece of elements to one number. The host adds these numbers in
/// order, so that results are reproducible.
struct SumOfSquares {
  SHARDBOOK_KERNEL void operator()(Team team, Index number, const float* t, Index size, double* sums) const {
    double sum = 0;
    for (Index i = number * Team::size + team.lane; i < size; i += cuda::Gpu::teams * Team::size)
      sum += static_cast<double>(t[i]) * t[i];
    sums[number] = team.sum(sum);
  }
};
struct CountNotFinite {
  SHARDBOOK_KERNEL void operator()(Team team, Index number, const float* t, Index size,
                                   double* counts) const {
    double count = 0;
    for (Index i = number * Team::size + team.lane; i < size; i += cuda::Gpu::teams * Team::size)
      count += t[i] - t[i] == 0 ? 0 : 1;
    counts[number] = team.sum(count);
  }
};

/// Adds the teams' results.
template <class Kernel>
Later<double> reduced(const Tensor& t, Kernel kernel) {
  cuda::launch_rows(kernel, cuda::Gpu::teams, gpu().computation(), TensorMemory::data(t), t.size(),
                    gpu().scratch());
  return Later<double>(
      [copy = std::make_shared<cuda::HostCopy>(gpu().scratch(), cuda::Gpu::teams * sizeof(double))] {
        const std::vector<double> sums = copy->numbers<double>();
        return std::accumulate(sums.begin(), sums.end(), 0.0);
      });
}

/// Launches a kernel for each element of `t`.
template <class Kernel, class... Args>
void launch_on(const Tensor& t, Kernel kernel, Args... args) {
  launch_elements(kernel, t.size(), gpu().computation(), args...);
}

}  // namespace

void relu(const Tensor& z, Tensor& h) {
  launch_on(z, Relu(), TensorMemory::data(z), TensorMemory::data(h));
}

void relu_backward(Tensor& dh, const Tensor& z) {
  launch_on(z, ReluBackward(), TensorMemory::data(dh), TensorMemory::data(z));
}

void add(Tensor& a, const Tensor& b) {
  launch_on(b, Add(), TensorMemory::data(a), TensorMemory::data(b));
}

void subtract(Tensor& a, const Tensor& b) {
  launch_on(b, Subtract(), TensorMemory::data(a), TensorMemory::data(b));
}

void multiply(Tensor& a, const Tensor& b) {
  launch_on(b, Multiply(), TensorMemory::data(a), TensorMemory::data(b));
}

void scale(Tensor& t, float factor) {
  launch_on(t, Scale(), TensorMemory::data(t), factor);
}

void scaled_difference(Tensor& target, const Tensor& output, float factor) {
  launch_on(output, ScaledDifference(), TensorMemory::data(output), TensorMemory::data(target), factor);
}

void copy_slice(const Tensor& t, int axis, Range range, Tensor& part) {
  cuda::copy_slice(gpu().computation(), t, axis, range, TensorMemory::data(part));
}

void paste_slice(Tensor& t, int axis, Range range, const Tensor& part) {
  cuda::paste_slice(gpu().computation(), TensorMemory::data(part), t, axis, range);
}

Later<double> sum_of_squares(const Tensor& t) {
  return reduced(t, SumOfSquares());
}

bool all_finite(const Tensor& t) {
  return reduced(t, CountNotFinite()) == 0;
}

}  // namespace shard::kernels

namespace shard::cuda {

void divide(cudaStream_t stream, float* values, Index elements, float divisor) {
  launch_elements(kernels::Divide(), elements, stream, values, divisor);
}

}  // namespace shard::cuda
