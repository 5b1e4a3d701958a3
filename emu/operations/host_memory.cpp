#include "emu/operations/host_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <unordered_map>
#include <utility>

#include "emu/slice_copies.hpp"
#include "engine/device/runtime/notes.hpp"
#include "engine/device/runtime/operations/argument_checks.hpp"

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
    void* block = std::aligned_alloc(alignment, rounded(bytes));
    if (block == nullptr) throw std::bad_alloc();
    return block;
  }

  /// Does not allocate, since tensors are also freed when memory is exhausted.
  void give_back(void* block, std::size_t bytes) noexcept {
    next(block) = std::exchange(free_.find(rounded(bytes))->second, block);
    kept_ += rounded(bytes);
  }

 private:
  static constexpr std::size_t alignment = 64;  // a cache line, and the best alignment for vector loads
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

Storage::Storage(Index bytes, Purpose purpose)
    : bytes_(bytes),
      purpose_(purpose),
      data_(static_cast<float*>(cache().take(static_cast<std::size_t>(bytes)))) {
  runtime::note_allocation(purpose_, bytes_);
}

Storage::~Storage() {
  runtime::note_release(purpose_, bytes_);
  cache().give_back(data_, static_cast<std::size_t>(bytes_));
}

void Storage::charge_to(Purpose purpose) {
  runtime::note_move(purpose_, purpose, bytes_);
  purpose_ = purpose;
}

std::span<float> TensorMemory::span(Tensor& t) {
  return {data(t), static_cast<std::size_t>(t.size())};
}
std::span<const float> TensorMemory::span(const Tensor& t) {
  return {data(t), static_cast<std::size_t>(t.size())};
}

Tensor TensorMemory::make(Shape shape, Purpose purpose) {
  const Index bytes = bytes_of(shape);
  auto storage = bytes == 0 ? nullptr : std::make_shared<Storage>(bytes, purpose);
  return Tensor(std::move(shape), std::move(storage));
}

Tensor::Tensor(Shape shape, SourceLine where) {
  const CallSite call(where);
  *this = TensorMemory::make(std::move(shape));
  std::ranges::fill(TensorMemory::span(*this), 0.0F);
}

Tensor Tensor::uninitialized(Shape shape, SourceLine where) {
  const CallSite call(where);
  return TensorMemory::make(std::move(shape));
}

Tensor Tensor::from_host(Shape shape, std::span<const float> values, SourceLine where) {
  const CallSite call(where);
  Tensor t = TensorMemory::make(std::move(shape));
  require_values("from_host", t, values);
  std::ranges::copy(values, TensorMemory::data(t));
  return t;
}

Tensor Tensor::clone() const {
  Tensor copy = TensorMemory::make(shape(), TensorMemory::purpose(*this));
  std::ranges::copy(TensorMemory::span(*this), TensorMemory::data(copy));
  return copy;
}

void Tensor::write(int axis, Index begin, Index end, std::span<const float> values, SourceLine where) {
  const CallSite call(where);
  require_count("write", "values", num_elements(shape_of_slice("write", *this, axis, begin, end)),
                static_cast<Index>(values.size()));
  if (!values.empty()) emu::paste_slice(values.data(), *this, axis, {begin, end});
}

void Tensor::read(Index first, std::span<float> values, SourceLine where) const {
  const CallSite call(where);
  require_inside("read", *this, first, values);
  std::copy_n(TensorMemory::data(*this) + first, values.size(), values.begin());
}

std::vector<float> Tensor::to_host() const {
  auto values = TensorMemory::span(*this);
  return {values.begin(), values.end()};
}

Later<std::vector<float>> Tensor::to_host_later() const {
  return to_host();
}

void Tensor::charge_to(Purpose purpose) {
  if (storage_) storage_->charge_to(purpose);
}

}  // namespace shard
