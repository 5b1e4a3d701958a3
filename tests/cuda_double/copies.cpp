// Copies and fills of the double, which are launched in streams.

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>

#include "double.hpp"

using namespace cuda_double;

namespace {

/// A copy to the host's memory. The host may read it only after it has waited for the stream.
struct HostCopy {
  void* to;
  std::shared_ptr<std::vector<char>> values;
  int stream;
  std::uint64_t tick;
};
std::list<HostCopy> host_copies;

/// A copy from page-locked memory. The host may write there when it knows that the copy is done.
struct PageLockedSource {
  const char* from;
  std::vector<char> values;  // at the launch
  int stream;
  std::uint64_t tick;

  void require_unchanged() const {
    if (std::memcmp(from, values.data(), values.size()) != 0)
      violation("the host has written memory that a copy to the GPU may still read");
  }
};
std::list<PageLockedSource> page_locked_sources;

/// Checks the copies whose source fits, and forgets them.
void check_sources(const std::function<bool(const PageLockedSource&)>& fits) {
  page_locked_sources.remove_if([&](const PageLockedSource& source) {
    const bool is_over = fits(source);
    if (is_over) source.require_unchanged();
    return is_over;
  });
}

cudaError_t copy_to_host(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  count("copies to the host");
  check_sources([&](const PageLockedSource& source) {  // the stream writes there itself, after those copies
    return overlap({to, bytes, true}, {source.from, source.values.size(), false});
  });
  std::memset(to, 0xff, bytes);  // NaNs, in case the host reads too early
  auto values = std::make_shared<std::vector<char>>(bytes);
  const cudaError_t result = add_work(stream, "cudaMemcpyAsync", {{from, bytes, false}}, [=] {
    std::memcpy(values->data(), kept_at(from), bytes);
    return true;
  });
  host_copies.push_back({to, values, stream->number, stream->clock[stream->number]});
  return result;
}

/// Page-locked memory is read when the stream comes to the copy. Other memory is copied before the call returns.
cudaError_t copy_from_host(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                           std::size_t width, std::size_t height, cudaStream_t stream) {
  if (is_of_device(from)) violation("a copy from the host: device memory given as the host's");
  count("copies from the host");
  const char* values = static_cast<const char*>(from);
  std::vector<char> copy;
  if (!is_page_locked(from)) {
    block_host("a copy from the host", [=] { return !is_busy(stream); });  // as the driver may
    copy.assign(values, values + from_pitch * (height - 1) + width);
  }
  const cudaError_t result = add_work(
      stream, "a copy from the host", {{to, to_pitch * (height - 1) + width, true}},
      [=, copy = std::move(copy)] {
        const char* source = copy.empty() ? values : copy.data();
        for (std::size_t row = 0; row < height; ++row)
          std::memcpy(static_cast<char*>(kept_at(to)) + row * to_pitch, source + row * from_pitch, width);
        return true;
      });
  if (is_page_locked(from))
    page_locked_sources.push_back({values,
                                   {values, values + from_pitch * (height - 1) + width},
                                   stream->number,
                                   stream->clock[stream->number]});
  return result;
}

}  // namespace

void cuda_double::forget_sources(const void* begin, const void* end) {
  check_sources([&](const PageLockedSource& source) { return source.from >= begin && source.from < end; });
}

void cuda_double::deliver() {
  check_sources([](const PageLockedSource& source) { return host_knows(source.stream, source.tick); });
  host_copies.remove_if([](const HostCopy& d) {
    if (!host_knows(d.stream, d.tick)) return false;
    std::memcpy(d.to, d.values->data(), d.values->size());
    return true;
  });
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  PLANTED("cudaMemsetAsync");
  return add_work(stream, "cudaMemsetAsync", {{data, bytes, true}}, [=] {
    std::memset(kept_at(data), value, bytes);
    return true;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  PLANTED("cudaMemcpyAsync");
  if (kind == cudaMemcpyDeviceToDevice)
    return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
  const bool to_device = kind == cudaMemcpyHostToDevice;
  if (is_of_device(to_device ? from : to)) violation("cudaMemcpyAsync: device memory given as the host's");
  if (to_device) return copy_from_host(to, bytes, from, bytes, bytes, 1, stream);
  return copy_to_host(to, from, bytes, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  PLANTED("cudaMemcpy2DAsync");
  if (std::max(to_pitch, from_pitch) >= std::size_t{1} << 31) return cudaErrorInvalidValue;
  if (width > to_pitch || width > from_pitch || width == 0 || height == 0)
    violation("cudaMemcpy2DAsync: rows wider than their distance, or none");
  if (kind == cudaMemcpyHostToDevice)
    return copy_from_host(to, to_pitch, from, from_pitch, width, height, stream);
  if (kind != cudaMemcpyDeviceToDevice) violation("cudaMemcpy2DAsync: not to the host");
  const std::vector<Access> accesses = {{from, from_pitch * (height - 1) + width, false},
                                        {to, to_pitch * (height - 1) + width, true}};
  if (overlap(accesses[0], accesses[1])) violation("a copy onto a part of itself");
  return add_work(stream, "cudaMemcpy2DAsync", accesses, [=] {
    const char* source = static_cast<char*>(kept_at(from));
    char* target = static_cast<char*>(kept_at(to));
    for (std::size_t row = 0; row < height; ++row)
      std::memcpy(target + row * to_pitch, source + row * from_pitch, width);
    return true;
  });
}
