#include "emu/operations/host_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <unordered_map>
#include <utility>

#include "emu/slice_copies.hpp"
#include "engine/device/runtime/operations/kernels.hpp"

namespace shard {

namespace {

/// Keeps freed blocks by size for reuse: each training step allocates the same sizes, and the first access to
/// new pages costs more than the arithmetic on them.
class BlockCache {
 public:
  ~BlockCache() { release_all(); }

  void* take(std::size_t bytes) {
    void*& first = free_[rounded(bytes)];
    if (first != nullptr) {
      kept_ -= rounded(bytes);
      return std::exchange(first, next(first));
    }
    if (kept_ > most_kept) release_all();
    const bool is_large = bytes >= 2 * huge_page;
    void* block = std::aligned_alloc(is_large ? huge_page : alignment, rounded(bytes));
    if (block == nullptr) throw std::bad_alloc();
    // Products of large matrices then wait less for addresses. Where there are none, small pages do.
    if (is_large) madvise(block, rounded(bytes), MADV_HUGEPAGE);
    return block;
  }

  /// Does not allocate, since tensors are also freed when memory is exhausted.
  void give_back(void* block, std::size_t bytes) noexcept {
    next(block) = std::exchange(free_.find(rounded(bytes))->second, block);
    kept_ += rounded(bytes);
  }

 private:
  static constexpr std::size_t alignment = 64;  // a cache line, and the best alignment for vector loads
  static constexpr std::size_t huge_page = std::size_t{2} << 20;
  static constexpr std::size_t most_kept = std::size_t{1} << 30;

  static std::size_t rounded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

  /// The next free block of this size; a free block stores it in its first bytes.
  static void*& next(void* block) { return *static_cast<void**>(block); }

  void release_all() {
    for (auto& [bytes, first] : free_)
      while (first != nullptr) std::free(std::exchange(first, next(first)));
    kept_ = 0;
  }

  std::unordered_map<std::size_t, void*> free_;  // the first block of each size that was ever taken
  std::size_t kept_ = 0;
};

/// Never destroyed: a static tensor may be destroyed after it.
BlockCache& cache() {
  static auto* blocks = new BlockCache;
  return *blocks;
}

}  // namespace

HostStorage::HostStorage(Index bytes, Purpose purpose)
    : Storage(bytes, purpose), data_(static_cast<float*>(cache().take(static_cast<std::size_t>(bytes)))) {}

HostStorage::~HostStorage() {
  cache().give_back(data_, static_cast<std::size_t>(bytes()));
}

std::span<float> TensorMemory::span(Tensor& t) {
  return {data(t), static_cast<std::size_t>(t.size())};
}
std::span<const float> TensorMemory::span(const Tensor& t) {
  return {data(t), static_cast<std::size_t>(t.size())};
}

namespace kernels {

std::shared_ptr<Storage> allocate(Index bytes, Purpose purpose) {
  return std::make_shared<HostStorage>(bytes, purpose);
}

void fill_with_zeros(Tensor& t) {
  std::ranges::fill(TensorMemory::span(t), 0.0F);
}

void copy(const Tensor& t, Tensor& copy) {
  std::ranges::copy(TensorMemory::span(t), TensorMemory::data(copy));
}

void write_all(Tensor& t, std::span<const float> values) {
  std::ranges::copy(values, TensorMemory::data(t));
}

void write(Tensor& t, int axis, Range range, std::span<const float> values) {
  emu::paste_slice(values.data(), t, axis, range);
}

void read(const Tensor& t, Index first, std::span<float> values) {
  std::copy_n(TensorMemory::data(t) + first, values.size(), values.begin());
}

Later<std::vector<float>> read_later(const Tensor& t) {
  return t.to_host();
}

}  // namespace kernels
}  // namespace shard
