// Queues, events and memory of the double.

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>

#include "double.hpp"

using cuda_double::violation;

/// How far each queue has got, as far as somebody knows; the host is number 0.
using Clock = std::map<int, std::uint64_t>;

struct CUstream_st {
  int number;
  Clock clock;
  std::deque<std::function<bool()>> work;
};

struct CUevent_st {
  Clock clock;
  std::shared_ptr<bool> is_reached;  // none: never recorded
};

namespace cuda_double {

int open_groups = 0;

namespace {

void merge(Clock& into, const Clock& from) {
  for (const auto& [number, tick] : from) into[number] = std::max(into[number], tick);
}

struct Allocation {
  std::size_t bytes;
  int writer = -1;
  std::uint64_t written = 0;
  std::string writing;
  Clock readers;
};

/// Program and double know memory under two addresses: the program's cannot be read or written.
struct Memory {
  static constexpr std::size_t size = std::size_t{1} << 36;
  char* shown;
  char* kept;
  std::size_t used = 4096;
  std::map<const char*, Allocation> allocations;

  Memory() : shown(map(PROT_NONE)), kept(map(PROT_READ | PROT_WRITE)) {}
  static char* map(int protection) {
    void* at = mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) violation("cannot reserve addresses");
    return static_cast<char*>(at);
  }
  bool shows(const void* data) const { return data >= shown && data < shown + size; }
};

/// Device memory read or written on the host. (Catch has a handler of its own while a test case runs.)
void on_fault(int, siginfo_t* info, void*);
void at_exit();

struct State {
  Memory memory;
  Clock host;
  std::set<cudaStream_t> queues;
  int next_number = 1;
  std::map<const void*, const char*> held;
  struct Plan {
    std::string call;
    int after;
    int error;
  };
  std::vector<Plan> plans;
  bool is_progressing = false;

  State() {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    std::atexit(at_exit);
  }
};

State& state() {
  static auto* instance = new State;
  return *instance;
}

void on_fault(int, siginfo_t* info, void*) {
  if (state().memory.shows(info->si_addr)) violation("device memory was touched on the host");
  signal(SIGSEGV, SIG_DFL);
}

void at_exit() {
  if (open_groups > 0) violation("at exit, a group is open");
  if (state().held.empty()) return;
  std::map<std::string, int> left;
  for (const auto& [thing, kind] : state().held) ++left[kind];
  std::string text;
  for (const auto& [kind, count] : left) text += fmt::format(" {} {},", count, kind);
  text.pop_back();
  violation("at exit, not given back:" + text);
}

Allocation& allocation_of(const Access& access, const char* what) {
  auto& all = state().memory.allocations;
  const char* data = static_cast<const char*>(access.data);
  auto after = all.upper_bound(data);
  if (after == all.begin()) violation(fmt::format("{} uses what is no device memory", what));
  auto& [begin, allocation] = *std::prev(after);
  if (data >= begin + allocation.bytes) violation(fmt::format("{} uses what is no device memory", what));
  if (data + access.bytes > begin + allocation.bytes)
    violation(fmt::format("{} goes beyond the end of its memory", what));
  return allocation;
}

/// An access at the queue's present time.
void check_order(const Access& access, cudaStream_t queue, const char* what) {
  Allocation& a = allocation_of(access, what);
  Clock& now = queue->clock;
  if (a.writer >= 0 && now[a.writer] < a.written)
    violation(fmt::format("{} {} memory that another queue writes ({}), without waiting for it", what,
                          access.is_write ? "writes" : "reads", a.writing));
  if (!access.is_write) {
    a.readers[queue->number] = now[queue->number];
    return;
  }
  for (const auto& [reader, tick] : a.readers)
    if (now[reader] < tick)
      violation(fmt::format("{} writes memory that another queue reads, without waiting for it", what));
  a.writer = queue->number;
  a.written = now[queue->number];
  a.writing = what;
  a.readers.clear();
}

void require_queue(cudaStream_t queue, const char* call) {
  if (!state().queues.contains(queue)) violation(fmt::format("{}: no such queue", call));
}

}  // namespace

void violation(const std::string& what) {
  std::fflush(stdout);
  std::fprintf(stderr, "error: cuda double: %s\n", what.c_str());
  std::fflush(stderr);
  std::_Exit(70);
}

void plant(const char* call, int k, int error) {
  state().plans.push_back({call, k, error});
}

int planted(const char* call) {
  auto& plans = state().plans;
  for (auto plan = plans.begin(); plan != plans.end(); ++plan) {
    if (plan->call != call || plan->after-- > 0) continue;
    const int error = plan->error;
    plans.erase(plan);
    return error;
  }
  return 0;
}

void require_no_open_group(const char* call) {
  if (open_groups > 0) violation(fmt::format("{} in an open group", call));
}

void gained(const char* kind, const void* thing) {
  state().held[thing] = kind;
}
void require_there(const char* kind, const void* thing, const char* call) {
  auto there = state().held.find(thing);
  if (there == state().held.end() || std::string_view(there->second) != kind)
    violation(fmt::format("{}: not one of {}", call, kind));
}
void given_back(const char* kind, const void* thing, const char* call) {
  require_there(kind, thing, call);
  state().held.erase(thing);
}

void* kept_at(const void* device_address) {
  const Memory& m = state().memory;
  return m.kept + (static_cast<const char*>(device_address) - m.shown);
}

bool is_busy(cudaStream_t queue) {
  return !queue->work.empty();
}

void progress() {
  if (state().is_progressing) return;
  state().is_progressing = true;
  for (bool moved = true; moved;) {
    moved = false;
    for (cudaStream_t queue : state().queues)
      while (!queue->work.empty() && queue->work.front()()) {
        queue->work.pop_front();
        moved = true;
      }
  }
  state().is_progressing = false;
}

cudaError_t enqueue(cudaStream_t queue, const char* what, const std::vector<Access>& accesses,
                    std::function<bool()> work) {
  require_queue(queue, what);
  require_no_open_group(what);
  merge(queue->clock, state().host);
  ++queue->clock[queue->number];
  for (const Access& access : accesses) check_order(access, queue, what);
  queue->work.push_back(std::move(work));
  progress();
  return cudaSuccess;
}

}  // namespace cuda_double

using namespace cuda_double;

#define PLANTED(call) \
  if (const int error = planted(call)) return static_cast<cudaError_t>(error == left_out ? 0 : error)

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    default:
      return "an error planted in the test double";
  }
}

cudaError_t cudaGetDeviceCount(int* count) {
  const char* given = std::getenv("CUDA_DOUBLE_GPUS");
  *count = given == nullptr ? 8 : std::atoi(given);
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  int count;
  cudaGetDeviceCount(&count);
  return device >= 0 && device < count ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceSynchronize() {
  PLANTED("cudaDeviceSynchronize");
  for (cudaStream_t queue : state().queues) cudaStreamSynchronize(queue);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  PLANTED("cudaMalloc");
  Memory& m = state().memory;
  const std::size_t rounded = (bytes + 511) / 512 * 512;
  if (m.used + rounded > Memory::size) return cudaErrorMemoryAllocation;
  *data = m.shown + m.used;
  m.used += rounded + 512;
  m.allocations[static_cast<char*>(*data)] = {bytes, -1, 0, "", {}};
  std::memset(kept_at(*data), 0xff, bytes);  // NaNs, for whoever reads what nobody has written
  gained("memory", *data);
  return cudaSuccess;
}

cudaError_t cudaFree(void* data) {
  PLANTED("cudaFree");
  given_back("memory", data, "cudaFree");
  auto& allocations = state().memory.allocations;
  const Allocation& a = allocations[static_cast<char*>(data)];
  bool in_use = a.writer >= 0 && state().host[a.writer] < a.written;
  for (const auto& [reader, tick] : a.readers) in_use = in_use || state().host[reader] < tick;
  if (in_use) violation("cudaFree of memory that a queue still uses, as far as the host knows");
  allocations.erase(static_cast<char*>(data));
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t queue) {
  PLANTED("cudaMemsetAsync");
  return enqueue(queue, "cudaMemsetAsync", {{data, bytes, true}}, [=] {
    std::memset(kept_at(data), value, bytes);
    return true;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t queue) {
  PLANTED("cudaMemcpyAsync");
  if (kind == cudaMemcpyDeviceToDevice)
    return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, queue);
  const bool to_device = kind == cudaMemcpyHostToDevice;
  if (state().memory.shows(to_device ? from : to))
    violation("cudaMemcpyAsync: device memory given as the host's");
  if (to_device) {  // from pageable memory: it may be written again when the call returns
    const char* values = static_cast<const char*>(from);
    return enqueue(queue, "cudaMemcpyAsync", {{to, bytes, true}},
                   [=, copy = std::vector<char>(values, values + bytes)] {
                     std::memcpy(kept_at(to), copy.data(), bytes);
                     return true;
                   });
  }
  return enqueue(queue, "cudaMemcpyAsync", {{from, bytes, false}}, [=] {
    std::memcpy(to, kept_at(from), bytes);
    return true;
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind,
                              cudaStream_t queue) {
  PLANTED("cudaMemcpy2DAsync");
  if (kind != cudaMemcpyDeviceToDevice) violation("cudaMemcpy2DAsync: within the device only");
  if (width > to_pitch || width > from_pitch || width == 0 || height == 0)
    violation("cudaMemcpy2DAsync: rows wider than their distance, or none");
  const std::vector<Access> accesses = {{from, from_pitch * (height - 1) + width, false},
                                        {to, to_pitch * (height - 1) + width, true}};
  return enqueue(queue, "cudaMemcpy2DAsync", accesses, [=] {
    const char* source = static_cast<char*>(kept_at(from));
    char* target = static_cast<char*>(kept_at(to));
    for (std::size_t row = 0; row < height; ++row)
      std::memcpy(target + row * to_pitch, source + row * from_pitch, width);
    return true;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* queue, unsigned) {
  PLANTED("cudaStreamCreateWithFlags");
  *queue = new CUstream_st{state().next_number++, {}, {}};
  state().queues.insert(*queue);
  gained("queues", *queue);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t queue) {
  PLANTED("cudaStreamDestroy");
  given_back("queues", queue, "cudaStreamDestroy");
  if (is_busy(queue)) violation("cudaStreamDestroy of a queue that is not empty");
  state().queues.erase(queue);
  delete queue;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t queue) {
  PLANTED("cudaStreamSynchronize");
  require_queue(queue, "cudaStreamSynchronize");
  require_no_open_group("cudaStreamSynchronize");
  for (progress(); is_busy(queue); progress()) sched_yield();
  merge(state().host, queue->clock);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t queue, cudaEvent_t event, unsigned) {
  PLANTED("cudaStreamWaitEvent");
  require_there("events", event, "cudaStreamWaitEvent");
  if (!event->is_reached) violation("cudaStreamWaitEvent: an event that was never recorded");
  merge(queue->clock, event->clock);
  return enqueue(queue, "cudaStreamWaitEvent", {}, [reached = event->is_reached] { return *reached; });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  PLANTED("cudaEventCreateWithFlags");
  *event = new CUevent_st;
  gained("events", *event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  PLANTED("cudaEventDestroy");
  given_back("events", event, "cudaEventDestroy");
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t queue) {
  PLANTED("cudaEventRecord");
  require_there("events", event, "cudaEventRecord");
  require_queue(queue, "cudaEventRecord");
  auto reached = std::make_shared<bool>(false);
  event->is_reached = reached;
  const cudaError_t result = enqueue(queue, "cudaEventRecord", {}, [reached] { return *reached = true; });
  event->clock = queue->clock;
  return result;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  PLANTED("cudaEventQuery");
  require_there("events", event, "cudaEventQuery");
  require_no_open_group("cudaEventQuery");
  if (!event->is_reached) violation("cudaEventQuery: an event that was never recorded");
  progress();
  if (!*event->is_reached) return cudaErrorNotReady;
  merge(state().host, event->clock);
  return cudaSuccess;
}
