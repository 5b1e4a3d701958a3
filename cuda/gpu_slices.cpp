#include "cuda/gpu_slices.hpp"

#include <algorithm>

#include "cuda/gpu.hpp"
#include "cuda/success.hpp"
#include "engine/device/runtime/collectives/collectives.hpp"

namespace shard::cuda {

void copy_pieces(cudaStream_t stream, const float* from, Index from_distance, float* to, Index to_distance,
                 Index width, Index rows, cudaMemcpyKind kind) {
  if (width == 0 || rows == 0) return;
  auto bytes = [](Index elements) { return static_cast<std::size_t>(elements) * sizeof(float); };
  constexpr Index most_distance = (Index{1} << 29) - 1;  // in elements: CUDA takes less than 2 GiB
  if (rows == 1 || std::max(from_distance, to_distance) > most_distance)
    for (Index row = 0; row < rows; ++row)
      SHARDBOOK_CHECK(
          cudaMemcpyAsync(to + row * to_distance, from + row * from_distance, bytes(width), kind, stream));
  else
    SHARDBOOK_CHECK(cudaMemcpy2DAsync(to, bytes(to_distance), from, bytes(from_distance), bytes(width),
                                      static_cast<std::size_t>(rows), kind, stream));
}

namespace {

/// The number of elements of a slice of extent 1.
Index slice_of_one(const Tensor& t, int axis) {
  return num_elements(runtime::with_extent(t.shape(), axis, 1));
}

}  // namespace

void copy(cudaStream_t stream, const float* from, float* to, Index elements) {
  copy_pieces(stream, from, elements, to, elements, elements, 1);
}

void copy_slice(cudaStream_t stream, const Tensor& from, int axis, Range range, float* to) {
  const Index inner = runtime::elements_after(from.shape(), axis);
  const Index width = range.size() * inner;
  copy_pieces(stream, data_on(stream, from) + range.begin * inner, from.extent(axis) * inner, to, width,
              width, runtime::elements_before(from.shape(), axis));
}

void paste_slice(cudaStream_t stream, const float* from, Tensor& to, int axis, Range range) {
  const Index inner = runtime::elements_after(to.shape(), axis);
  const Index width = range.size() * inner;
  copy_pieces(stream, from, width, data_on(stream, to) + range.begin * inner, to.extent(axis) * inner, width,
              runtime::elements_before(to.shape(), axis));
}

Tensor packed_on(cudaStream_t stream, Tensor&& t, int axis, const std::vector<Range>& slices) {
  if (axis == 0) return std::move(t);
  Tensor row = make_on(stream, {t.size()}, Purpose::buffers);
  float* to = data_on(stream, row);
  for (const Range& r : slices) {
    copy_slice(stream, t, axis, r, to);
    to += r.size() * slice_of_one(t, axis);
  }
  t = Tensor();
  return row;
}

Tensor unpacked_on(cudaStream_t stream, Tensor&& row, Shape shape, int axis,
                   const std::vector<Range>& slices) {
  if (axis == 0) return std::move(row).reshaped(std::move(shape));
  Tensor t = make_on(stream, std::move(shape));
  const float* from = data_on(stream, std::as_const(row));
  for (const Range& r : slices) {
    paste_slice(stream, from, t, axis, r);
    from += r.size() * slice_of_one(t, axis);
  }
  row = Tensor();
  return t;
}

}  // namespace shard::cuda

namespace shard::runtime {

Tensor packed(Tensor&& t, int axis, const std::vector<Range>& slices) {
  return cuda::packed_on(cuda::gpu().computation(), std::move(t), axis, slices);
}

}  // namespace shard::runtime
