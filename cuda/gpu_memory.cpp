#include "cuda/gpu_memory.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <list>
#include <map>
#include <new>
#include <string>

#include "cuda/gpu_slices.hpp"
#include "cuda/nccl/connections.hpp"
#include "cuda/success.hpp"
#include "engine/device/runtime/operations/kernels.hpp"
#include "engine/device/runtime/stream.hpp"

namespace shard {

namespace cuda {
namespace {

/// A freed block, and the events in other streams after which it may be reused.
struct Block {
  float* data;
  std::vector<std::unique_ptr<Event>> free_after;
};

/// Whether the GPU has nothing to do, so that freed memory can go back to it without a wait. Outside of the body of a
/// call, calls in flight may end first.
bool is_idle() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  do {
    const bool is_busy = std::ranges::any_of(
        streams(), [](const auto& work) { return cudaStreamQuery(work.second) == cudaErrorNotReady; });
    if (!is_busy) return true;
    if (runtime::stream().is_in_body()) return false;
    runtime::stream().resume_ready();
    check_connections();
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

/// For tests: with SHARDBOOK_FILL_MEMORY, whoever reads a block before anyone has written it finds NaNs, and not what it
/// held before.
bool fills_with_nans() {
  static const bool is_set = std::getenv("SHARDBOOK_FILL_MEMORY") != nullptr;
  return is_set;
}

void forget_copies();

/// Keeps freed blocks by stream and size for reuse, since cudaMalloc and cudaFree wait for the GPU.
///
/// The computation stream may wait for a block's last use, since a call's argument was launched before any device knew
/// of the call. A stream of communication may not: its body takes blocks when it is launched, and the last use may be
/// behind a message that waits for this very call on another device. So it takes blocks that are free already.
class BlockCache {
 public:
  float* take(std::size_t bytes, cudaStream_t home) {
    std::vector<Block>& blocks = free_[{home, rounded(bytes)}];
    const auto found = std::ranges::find_if(blocks.rbegin(), blocks.rend(), [home](const Block& block) {
      return home == gpu().computation() ||
             std::ranges::all_of(block.free_after, [](auto& event) { return event->test(); });
    });
    if (found == blocks.rend()) return fresh(rounded(bytes), home);
    const Block block = std::move(*found);
    blocks.erase(std::next(found).base());
    if (home == host_memory) return block.data;
    for (const auto& event : block.free_after) event->make_wait(home);
    if (fills_with_nans()) SHARDBOOK_CHECK(cudaMemsetAsync(block.data, 0xff, rounded(bytes), home));
    return block.data;
  }

  void give_back(Block block, std::size_t bytes, cudaStream_t home) {
    free_[{home, rounded(bytes)}].push_back(std::move(block));
  }

  /// Ignores errors: if the GPU has failed, the next call reports it.
  void release_all() {
    cudaDeviceSynchronize();
    for (auto& [place, blocks] : free_)
      for (Block& block : blocks)
        place.first == host_memory ? cudaFreeHost(block.data) : cudaFree(block.data);
    free_.clear();
  }

 private:
  static std::size_t rounded(std::size_t bytes) { return (bytes + 511) / 512 * 512; }

  float* fresh(std::size_t bytes, cudaStream_t home) {
    void* data = nullptr;
    auto allocate = [&] {
      return home == host_memory ? cudaMallocHost(&data, bytes) : cudaMalloc(&data, bytes);
    };
    cudaError_t result = allocate();
    if (result == cudaErrorMemoryAllocation && is_idle()) {
      forget_copies();
      release_all();
      result = allocate();
    }
    if (result == cudaErrorMemoryAllocation) throw std::bad_alloc();
    check(result, home == host_memory ? "cudaMallocHost(&data, bytes)" : "cudaMalloc(&data, bytes)", __FILE__,
          __LINE__);
    return static_cast<float*>(data);
  }

  std::map<std::pair<cudaStream_t, std::size_t>, std::vector<Block>> free_;
};

/// Never destroyed: a static tensor may be destroyed after it.
BlockCache& cache() {
  static auto* blocks = new BlockCache;
  return *blocks;
}

/// The most bytes that a copy moves through page-locked memory at a time.
constexpr std::size_t page_locked = 1 << 20;

/// Page-locked memory for copies to the GPU, which fill it one behind the other, and the last of these copies.
struct Piece {
  Workspace memory{page_locked, host_memory};
  Index used = 0;
  Event copied;
};
constexpr std::size_t num_pieces = 16;
/// In turn: the last one is being filled.
std::list<Piece>& pieces() {
  static auto* in_turn = new std::list<Piece>;
  return *in_turn;
}
/// Room for elements that copies in this stream will read.
float* page_locked_room(Index elements, cudaStream_t stream) {
  if (pieces().back().used + elements > static_cast<Index>(page_locked / sizeof(float))) {
    pieces().back().copied.record(stream);
    pieces().splice(pieces().end(), pieces(), pieces().begin());
    wait_for(pieces().back().copied);
    pieces().back().used = 0;
  }
  Piece& piece = pieces().back();
  return piece.memory.data<float>() + std::exchange(piece.used, piece.used + (elements + 15) / 16 * 16);
}

/// Copies rows of the host's memory to the GPU, where they begin at this distance from one another. In a copy from
/// other than page-locked memory, the driver may wait for the stream, the stream for other devices, and these for this
/// host.
void upload(float* to, Index distance, std::span<const float> from, Index rows) {
  constexpr Index most = page_locked / sizeof(float);
  const Index width = std::ssize(from) / rows, at_once = std::max<Index>(1, most / width);
  const cudaStream_t stream = gpu().computation();
  auto copy = [&](const float* source, Index row, Index column, Index length, Index count) {
    copy_pieces(stream, source, length, to + row * distance + column, distance, length, count,
                cudaMemcpyHostToDevice);
  };
  for (Index row = 0; row < rows; row += at_once)
    for (Index column = 0; column < width; column += most) {
      const Index length = std::min(most, width - column), count = std::min(at_once, rows - row);
      float* room = page_locked_room(length * count, stream);
      std::copy_n(from.data() + row * width + column, length * count, room);
      copy(room, row, column, length, count);
    }
}

/// Copies of host numbers, by their bytes. Never destroyed, as the cache. If there are too many, the one that was
/// used least recently is freed.
constexpr std::size_t most_copies = 64;
struct KeptCopy {
  std::shared_ptr<const Workspace> memory;
  Index used;  ///< the number of the last request for it
};
std::unordered_map<std::string, KeptCopy>& copies() {
  static auto* kept = new std::unordered_map<std::string, KeptCopy>;
  return *kept;
}

/// Frees the copies that are made again when an operation needs them.
void forget_copies() {
  copies().clear();
  copies_in_bf16().clear();
}

}  // namespace

void reserve_page_locked() {
  while (pieces().size() < num_pieces) pieces().emplace_back();
}

void release_blocks() {
  forget_copies();
  pieces().clear();
  cache().release_all();
}

std::unordered_map<const GpuStorage*, std::shared_ptr<const Workspace>>& copies_in_bf16() {
  static auto* kept = new std::unordered_map<const GpuStorage*, std::shared_ptr<const Workspace>>;
  return *kept;
}

Tensor make_on(cudaStream_t home, Shape shape, Purpose purpose) {
  const Index bytes = bytes_of(shape);
  auto storage = bytes == 0 ? nullptr : std::make_shared<GpuStorage>(bytes, purpose, home);
  return TensorMemory::on(std::move(shape), std::move(storage));
}

float* data_on(cudaStream_t stream, Tensor& t) {
  GpuStorage* const written = storage(t);
  if (written == nullptr) return nullptr;
  float* data = written->data_on(stream);
  written->from_host.clear();
  copies_in_bf16().erase(written);
  return data;
}

const float* data_on(cudaStream_t stream, const Tensor& t) {
  return storage(t) == nullptr ? nullptr : storage(t)->data_on(stream);
}

Workspace::Workspace(Index bytes) : Workspace(bytes, gpu().computation()) {}

Workspace::Workspace(Index bytes, cudaStream_t home) : bytes_(static_cast<std::size_t>(bytes)), home_(home) {
  if (bytes > 0) data_ = cache().take(bytes_, home_);
}

Workspace::~Workspace() {
  if (bytes_ > 0) cache().give_back({static_cast<float*>(data_), {}}, bytes_, home_);
}

DeviceCopy::DeviceCopy(const void* numbers, std::size_t bytes) {
  static Index request = 0;
  ++request;
  std::string key(static_cast<const char*>(numbers), bytes);
  if (auto kept = copies().find(key); kept != copies().end()) {
    kept->second.used = request;
    memory_ = kept->second.memory;
    return;
  }
  if (copies().size() == most_copies)
    copies().erase(std::ranges::min_element(copies(), {}, [](const auto& kept) { return kept.second.used; }));
  const auto fresh = std::make_shared<Workspace>(static_cast<Index>(bytes));
  memory_ = fresh;
  if (bytes == 0) return;
  upload(fresh->data<float>(), 0, {static_cast<const float*>(numbers), bytes / sizeof(float)}, 1);
  copies().emplace(std::move(key), KeptCopy{fresh, request});
}

HostCopy::HostCopy(std::size_t bytes) : bytes_(bytes), data_(cache().take(bytes, host_memory)) {}

HostCopy::HostCopy(const void* from, std::size_t bytes) : HostCopy(bytes) {
  SHARDBOOK_CHECK(cudaMemcpyAsync(data_, from, bytes, cudaMemcpyDeviceToHost, gpu().computation()));
  is_made_->record(gpu().computation());
}

HostCopy::~HostCopy() {
  Block block{data_, {}};
  block.free_after.push_back(std::move(is_made_));
  cache().give_back(std::move(block), bytes_, host_memory);
}

GpuStorage::GpuStorage(Index bytes, Purpose purpose, cudaStream_t home)
    : Storage(bytes, purpose), home_(home) {
  if (home != nullptr) data_ = cache().take(static_cast<std::size_t>(bytes), home);
}

GpuStorage::~GpuStorage() {
  copies_in_bf16().erase(this);
  if (data_ == nullptr || gpu().is_closed()) return;
  try {
    Block block{data_, {}};
    for (cudaStream_t stream : other_streams_) {
      block.free_after.push_back(std::make_unique<Event>());
      block.free_after.back()->record(stream);
    }
    cache().give_back(std::move(block), static_cast<std::size_t>(bytes()), home_);
  } catch (const Error&) {
    // The GPU has failed, so its memory is lost. The call that failed first reports it.
  }
}

float* GpuStorage::data_on(cudaStream_t stream) {
  if (stream != home_ && std::ranges::find(other_streams_, stream) == other_streams_.end())
    other_streams_.push_back(stream);
  if (!std::exchange(is_on_gpu, true)) upload(data_, 0, from_host, 1);
  return data_;
}

}  // namespace cuda

using cuda::gpu;
using cuda::storage;

float* TensorMemory::data(Tensor& t) {
  return cuda::data_on(gpu().computation(), t);
}
const float* TensorMemory::data(const Tensor& t) {
  return cuda::data_on(gpu().computation(), t);
}

namespace kernels {

std::shared_ptr<Storage> allocate(Index bytes, Purpose purpose) {
  return std::make_shared<cuda::GpuStorage>(bytes, purpose, gpu().computation());
}

void fill_with_zeros(Tensor& t) {
  cuda::stay_below_full_queue();
  SHARDBOOK_CHECK(
      cudaMemsetAsync(TensorMemory::data(t), 0, static_cast<std::size_t>(t.bytes()), gpu().computation()));
}

void copy(const Tensor& t, Tensor& copy) {
  cuda::stay_below_full_queue();
  SHARDBOOK_CHECK(cudaMemcpyAsync(TensorMemory::data(copy), TensorMemory::data(t),
                                  static_cast<std::size_t>(t.bytes()), cudaMemcpyDeviceToDevice,
                                  gpu().computation()));
}

void write_all(Tensor& t, std::span<const float> values) {
  if (values.size_bytes() > cuda::page_locked) return cuda::upload(TensorMemory::data(t), 0, values, 1);
  storage(t)->from_host.assign(values.begin(), values.end());
  storage(t)->is_on_gpu = false;
}

void write(Tensor& t, int axis, Range range, std::span<const float> values) {
  const Index inner = runtime::elements_after(t.shape(), axis);
  cuda::upload(TensorMemory::data(t) + range.begin * inner, t.extent(axis) * inner, values,
               runtime::elements_before(t.shape(), axis));
}

void read(const Tensor& t, Index first, std::span<float> values) {
  if (const std::vector<float>& known = storage(t)->from_host; !known.empty()) {
    std::copy_n(known.begin() + first, values.size(), values.begin());
    return;
  }
  const float* from = TensorMemory::data(t) + first;
  constexpr std::size_t most = cuda::page_locked / sizeof(float);
  std::list<cuda::HostCopy> begun;  // of two pieces: the GPU copies one while the host reads the other
  for (std::size_t read = 0, next = 0; read < values.size(); read += most, begun.pop_front()) {
    for (; next < values.size() && begun.size() < 2; next += most)
      begun.emplace_back(from + next, std::min(most, values.size() - next) * sizeof(float));
    begun.front().read(values.data() + read);
  }
}

Later<std::vector<float>> read_later(const Tensor& t) {
  if (!storage(t)->from_host.empty()) return t.to_host();
  return Later<std::vector<float>>(
      [copy = std::make_shared<cuda::HostCopy>(TensorMemory::data(t), static_cast<std::size_t>(t.bytes()))] {
        return copy->numbers<float>();
      });
}

}  // namespace kernels
}  // namespace shard
