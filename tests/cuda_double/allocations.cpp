// The double's memory: addresses, and the last writes and reads.

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "double.hpp"

namespace cuda_double {

namespace {

struct Allocation {
  std::size_t bytes;
  int writer = -1;
  std::uint64_t written = 0;
  std::string writing;
  Clock readers;
};

/// Called when the host accesses device memory. (During a test case, Catch has its own handler.)
void on_fault(int, siginfo_t* info, void*);

/// Device memory has two addresses. The program's address is not accessible. The double's address is
/// accessible within allocations only: each of them ends at the end of a page, before a page that is not
/// accessible.
struct Memory {
  static constexpr std::size_t size = std::size_t{1} << 36;
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  char* shown;
  char* kept;
  std::size_t used = page;
  std::map<const char*, Allocation> allocations;

  Memory() : shown(map()), kept(map()) {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
  }
  static char* map() {
    void* at = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) violation("cannot reserve addresses");
    return static_cast<char*>(at);
  }
  bool shows(const void* data) const { return data >= shown && data < shown + size; }
  bool keeps(const void* data) const { return data >= kept && data < kept + size; }
  /// Protects all pages with any of the last `bytes` bytes before `end`.
  void protect(std::size_t end, std::size_t bytes, int protection) const {
    if (mprotect(kept + end - pages_of(bytes), pages_of(bytes), protection) != 0)
      violation("cannot change the protection of memory");
  }
  std::size_t pages_of(std::size_t bytes) const { return (bytes + page - 1) / page * page; }
  static std::size_t aligned(std::size_t bytes) { return (bytes + 15) / 16 * 16; }
};

Memory& memory() {
  static auto* instance = new Memory;
  return *instance;
}

void on_fault(int, siginfo_t* info, void*) {
  if (memory().shows(info->si_addr)) violation("device memory was touched on the host");
  if (memory().keeps(info->si_addr)) violation("a kernel goes beyond the end of its memory");
  signal(SIGSEGV, SIG_DFL);
}

/// The ends of allocations of page-locked memory, by their beginnings.
std::map<const void*, const void*>& page_locked() {
  static auto* all = new std::map<const void*, const void*>;
  return *all;
}

Allocation& allocation_of(const Access& access, const char* what) {
  auto& all = memory().allocations;
  const char* data = static_cast<const char*>(access.data);
  auto after = all.upper_bound(data);
  if (after == all.begin()) violation(fmt::format("{} uses what is no device memory", what));
  auto& [begin, allocation] = *std::prev(after);
  if (data >= begin + allocation.bytes) violation(fmt::format("{} uses what is no device memory", what));
  if (data + access.bytes > begin + allocation.bytes)
    violation(fmt::format("{} goes beyond the end of its memory", what));
  return allocation;
}

}  // namespace

void check_order(const Access& access, cudaStream_t stream, const char* what) {
  Allocation& a = allocation_of(access, what);
  Clock& now = stream->clock;
  if (a.writer >= 0 && now[a.writer] < a.written)
    violation(fmt::format("{} {} memory that another stream writes ({}), without waiting for it", what,
                          access.is_write ? "writes" : "reads", a.writing));
  if (!access.is_write) {
    a.readers[stream->number] = now[stream->number];
    return;
  }
  for (const auto& [reader, tick] : a.readers)
    if (now[reader] < tick)
      violation(fmt::format("{} writes memory that another stream reads, without waiting for it", what));
  a.writer = stream->number;
  a.written = now[stream->number];
  a.writing = what;
  a.readers.clear();
}

bool overlap(const Access& a, const Access& b) {
  const char* of_a = static_cast<const char*>(a.data);
  const char* of_b = static_cast<const char*>(b.data);
  return of_a < of_b + b.bytes && of_b < of_a + a.bytes;
}

bool is_of_device(const void* data) {
  return memory().shows(data);
}

bool is_page_locked(const void* data) {
  const auto after = page_locked().upper_bound(data);
  return after != page_locked().begin() && data < std::prev(after)->second;
}

std::size_t buffers_of_nccl = 0, memory_of_gpu = Memory::size;

std::size_t free_bytes() {
  std::size_t taken = buffers_of_nccl;
  for (const auto& [data, allocation] : memory().allocations) taken += allocation.bytes;
  return memory_of_gpu - std::min(taken, memory_of_gpu);
}

void* kept_at(const void* device_address) {
  const Memory& m = memory();
  return m.kept + (static_cast<const char*>(device_address) - m.shown);
}

}  // namespace cuda_double

using namespace cuda_double;

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  PLANTED("cudaMalloc");
  Memory& m = memory();
  const std::size_t aligned = Memory::aligned(bytes), end = m.used + m.pages_of(aligned);
  if (bytes > free_bytes() || end + m.page > Memory::size) return cudaErrorMemoryAllocation;
  m.used = end + m.page;
  m.protect(end, aligned, PROT_READ | PROT_WRITE);
  *data = m.shown + end - aligned;
  m.allocations[static_cast<char*>(*data)] = {bytes, -1, 0, "", {}};
  std::memset(kept_at(*data), 0xff, bytes);  // NaNs, which show a read before the first write
  gained("memory", *data);
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  PLANTED("cudaFree");
  wait_for_gpu("cudaFree");
  given_back("memory", data, "cudaFree");
  auto& allocations = memory().allocations;
  const Allocation& a = allocations[static_cast<char*>(data)];
  bool in_use = a.writer >= 0 && !host_knows(a.writer, a.written);
  for (const auto& [reader, tick] : a.readers) in_use = in_use || !host_knows(reader, tick);
  if (in_use) violation("cudaFree of memory that a stream still uses, as far as the host knows");
  const std::size_t aligned = Memory::aligned(a.bytes);
  const auto begin = static_cast<std::size_t>(static_cast<char*>(data) - memory().shown);
  memory().protect(begin + aligned, aligned, PROT_NONE);
  allocations.erase(static_cast<char*>(data));
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* all) {
  PLANTED("cudaMemGetInfo");
  *all = memory_of_gpu;
  *free = free_bytes();
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  PLANTED("cudaMallocHost");
  *data = std::malloc(bytes);
  page_locked()[*data] = static_cast<char*>(*data) + bytes;
  gained("host memory", *data);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  PLANTED("cudaFreeHost");
  wait_for_gpu("cudaFreeHost");
  given_back("host memory", data, "cudaFreeHost");
  forget_sources(data, page_locked()[data]);
  page_locked().erase(data);
  std::free(data);
  return cudaSuccess;
}
