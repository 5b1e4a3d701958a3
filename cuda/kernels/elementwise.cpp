/// Elementwise operations and reductions, one kernel each.

#include <numeric>

#include "cuda/gpu.hpp"
#include "cuda/gpu_slices.hpp"
#include "cuda/kernels/launch.hpp"
#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/argument_checks.hpp"

namespace shard {

using runtime::note_elementwise;

namespace {

using cuda::gpu;
using cuda::launch_elements;
using cuda::Team;

struct Relu {
  // NaN stays NaN.
  SHARDBOOK_KERNEL void operator()(Index i, const float* z, float* h) const { h[i] = z[i] < 0 ? 0 : z[i]; }
};
struct ReluBackward {
  SHARDBOOK_KERNEL void operator()(Index i, float* dh, const float* z) const { dh[i] = z[i] > 0 ? dh[i] : 0; }
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

template <class Kernel>
Tensor combined(const char* call, Tensor&& a, const Tensor& b, Kernel kernel) {
  require_same_shape(call, a, b);
  launch_elements(kernel, a.size(), gpu().computation(), TensorMemory::data(a), TensorMemory::data(b));
  return std::move(a);
}

}  // namespace

Tensor relu(const Tensor& z, SourceLine where) {
  const CallSite call(where);
  note_elementwise("relu", z.size());
  Tensor h = TensorMemory::make(z.shape());
  launch_elements(Relu(), z.size(), gpu().computation(), TensorMemory::data(z), TensorMemory::data(h));
  return h;
}

Tensor relu(Tensor&& z, SourceLine where) {
  const CallSite call(where);
  note_elementwise("relu", z.size());
  launch_elements(Relu(), z.size(), gpu().computation(), TensorMemory::data(std::as_const(z)),
                  TensorMemory::data(z));
  return std::move(z);
}

Tensor relu_backward(Tensor&& dh, const Tensor& z, SourceLine where) {
  const CallSite call(where);
  note_elementwise("relu_backward", z.size());
  return combined("relu_backward", std::move(dh), z, ReluBackward());
}

Tensor add(Tensor&& a, const Tensor& b, SourceLine where) {
  const CallSite call(where);
  note_elementwise("add", b.size());
  return combined("add", std::move(a), b, Add());
}

Tensor subtract(Tensor&& a, const Tensor& b, SourceLine where) {
  const CallSite call(where);
  note_elementwise("subtract", b.size());
  return combined("subtract", std::move(a), b, Subtract());
}

Tensor multiply(Tensor&& a, const Tensor& b, SourceLine where) {
  const CallSite call(where);
  note_elementwise("multiply", b.size());
  return combined("multiply", std::move(a), b, Multiply());
}

Tensor scale(Tensor&& a, float factor, SourceLine where) {
  const CallSite call(where);
  note_elementwise("scale", a.size());
  launch_elements(Scale(), a.size(), gpu().computation(), TensorMemory::data(a), factor);
  return std::move(a);
}

Tensor scaled_difference(const Tensor& output, Tensor&& target, float factor, SourceLine where) {
  const CallSite call(where);
  note_elementwise("scaled_difference", output.size());
  require_same_shape("scaled_difference", output, target);
  launch_elements(ScaledDifference(), target.size(), gpu().computation(), TensorMemory::data(output),
                  TensorMemory::data(target), factor);
  return std::move(target);
}

Tensor slice(const Tensor& t, int axis, Index begin, Index end, SourceLine where) {
  const CallSite call(where);
  Tensor part = TensorMemory::make(shape_of_slice("slice", t, axis, begin, end));
  note_elementwise("slice", part.size());
  cuda::copy_slice(gpu().computation(), t, axis, {begin, end}, TensorMemory::data(part));
  return part;
}

void assign(Rows rows, const Tensor& values, SourceLine where) {
  const CallSite call(where);
  note_elementwise("assign", values.size());
  require_shape("assign", rows.shape(), values);
  cuda::paste_slice(gpu().computation(), TensorMemory::data(values), *rows.tensor, 0, {rows.begin, rows.end});
}

Tensor concatenate(std::span<const Tensor* const> parts, int axis, SourceLine where) {
  const CallSite call(where);
  Tensor whole = TensorMemory::make(shape_of_concatenation(parts, axis));
  note_elementwise("concatenate", whole.size());
  Index begin = 0;
  for (const Tensor* t : parts) {
    cuda::paste_slice(gpu().computation(), TensorMemory::data(*t), whole, axis,
                      {begin, begin + t->extent(axis)});
    begin += t->extent(axis);
  }
  return whole;
}

Later<double> sum_of_squares(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  note_elementwise("sum_of_squares", t.size());
  return reduced(t, SumOfSquares());
}

bool all_finite(const Tensor& t, SourceLine where) {
  const CallSite call(where);
  note_elementwise("all_finite", t.size());
  return reduced(t, CountNotFinite()) == 0;
}

namespace cuda {

void divide(cudaStream_t stream, float* values, Index elements, float divisor) {
  launch_elements(Divide(), elements, stream, values, divisor);
}

}  // namespace cuda
}  // namespace shard
