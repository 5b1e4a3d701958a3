// Streams and events of the double: the work of each stream, and its order.

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>

#include "double.hpp"

struct CUevent_st {
  cuda_double::Clock clock;
  std::shared_ptr<bool> is_reached;  // null: never recorded
  int questions = 0;                 // since the record, until the answer is yes
  cudaStream_t stream = nullptr;
};

namespace cuda_double {

namespace {

/// Never destroyed, like the host's clock: both are used until the program ends.
std::set<cudaStream_t>& streams() {
  static auto* all = new std::set<cudaStream_t>;
  return *all;
}

void require_stream(cudaStream_t stream, const char* call) {
  if (!streams().contains(stream)) violation(fmt::format("{}: no such stream", call));
}

void merge(Clock& into, const Clock& from) {
  for (const auto& [number, tick] : from) into[number] = std::max(into[number], tick);
}

/// The vector clock of the host: the work that the host knows to be done.
Clock& host() {
  static auto* clock = new Clock;
  return *clock;
}
void tell_host(const Clock& clock) {
  merge(host(), clock);
  deliver();
}

}  // namespace

bool host_knows(int stream, std::uint64_t tick) {
  return host()[stream] >= tick;
}

bool is_busy(cudaStream_t stream) {
  return !stream->work.empty();
}

void progress() {
  static bool is_progressing = false;  // launched work may call this function
  if (is_progressing) return;
  is_progressing = true;
  for (bool moved = true; moved;) {
    moved = false;
    for (cudaStream_t stream : streams())
      while (!stream->work.empty() && stream->work.front()()) {
        stream->work.pop_front();
        moved = true;
      }
  }
  is_progressing = false;
}

std::chrono::seconds patience() {
  const char* given = std::getenv("CUDA_DOUBLE_PATIENCE");
  return std::chrono::seconds(given == nullptr ? 60 : std::atoi(given));
}

void block_host(const std::string& call, const std::function<bool()>& is_done) {
  const auto end = std::chrono::steady_clock::now() + patience();
  for (; !is_done(); progress()) {
    sched_yield();
    if (std::chrono::steady_clock::now() > end)
      violation(fmt::format("{}: the host waits for a device that does not come", call));
  }
}

void wait_for_gpu(const std::string& call) {
  block_host(call, [] { return std::ranges::none_of(streams(), is_busy); });
}

void load_kernel() {
  const char* loading = std::getenv("CUDA_MODULE_LOADING");
  if (loading != nullptr && std::string_view(loading) == "EAGER") return;
  wait_for_gpu("loading a kernel");
}

cudaError_t add_work(cudaStream_t stream, const char* what, const std::vector<Access>& accesses,
                     std::function<bool()> work) {
  require_stream(stream, what);
  require_no_open_group(what);
  merge(stream->clock, host());
  ++stream->clock[stream->number];
  for (const Access& access : accesses) check_order(access, stream, what);
  // An H200's driver waits with the next one. That would be right, but others may wait for this host.
  if (stream->work.size() >= 1024) violation(fmt::format("{}: a launch into a full queue", what));
  stream->work.push_back(std::move(work));
  progress();
  return cudaSuccess;
}

}  // namespace cuda_double

using namespace cuda_double;

cudaError_t cudaDeviceSynchronize() {
  PLANTED("cudaDeviceSynchronize");
  wait_for_gpu("cudaDeviceSynchronize");
  for (cudaStream_t stream : streams()) cudaStreamSynchronize(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  PLANTED("cudaStreamCreateWithFlags");
  // NCCL's own streams are not among those that are counted: see docs/cuda.md, "NCCL has streams, too".
  const char* given = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const std::size_t queues = given == nullptr ? 8 : static_cast<std::size_t>(std::atoi(given));
  if (streams().size() >= queues)
    violation(fmt::format("more streams than the GPU's {} queues: two in one wait for one another", queues));
  static int made = 0;
  *stream = new CUstream_st{++made, {}, {}};
  streams().insert(*stream);
  gained("streams", *stream);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  PLANTED("cudaDeviceGetStreamPriorityRange");
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  PLANTED("cudaStreamDestroy");
  given_back("streams", stream, "cudaStreamDestroy");
  if (is_busy(stream)) violation("cudaStreamDestroy of a stream that is not empty");
  streams().erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  PLANTED("cudaStreamSynchronize");
  require_stream(stream, "cudaStreamSynchronize");
  require_no_open_group("cudaStreamSynchronize");
  count("waits of the host");
  for (progress(); is_busy(stream); progress()) sched_yield();
  tell_host(stream->clock);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  PLANTED("cudaStreamQuery");
  require_stream(stream, "cudaStreamQuery");
  progress();
  return is_busy(stream) ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  PLANTED("cudaStreamWaitEvent");
  require_there("events", event, "cudaStreamWaitEvent");
  if (!event->is_reached) violation("cudaStreamWaitEvent: an event that was never recorded");
  merge(stream->clock, event->clock);
  return add_work(stream, "cudaStreamWaitEvent", {}, [reached = event->is_reached] { return *reached; });
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

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  PLANTED("cudaEventRecord");
  require_there("events", event, "cudaEventRecord");
  require_stream(stream, "cudaEventRecord");
  auto reached = std::make_shared<bool>(false);
  event->is_reached = reached;
  static std::minstd_rand random;
  event->questions = 1 + static_cast<int>(random() / 7 % 3);
  const cudaError_t result = add_work(stream, "cudaEventRecord", {}, [reached] { return *reached = true; });
  event->clock = stream->clock;
  event->stream = stream;
  return result;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  PLANTED("cudaEventQuery");
  require_there("events", event, "cudaEventQuery");
  require_no_open_group("cudaEventQuery");
  if (!event->is_reached) violation("cudaEventQuery: an event that was never recorded");
  progress();
  // GPUs are slow: the first to third queries return false, unless the host already knows that the event is reached. So
  // of two events in a row, the host may see the second one first, which is asked a little later.
  const bool is_known =
      std::ranges::all_of(event->clock, [](auto& at) { return host_knows(at.first, at.second); });
  if (!*event->is_reached || (!is_known && event->questions-- > 0)) return cudaErrorNotReady;
  if (!is_known) {
    count("waits of the host");
    const int number = event->stream->number;
    count("launches behind what the host waits for",
          static_cast<int>(event->stream->clock[number] - event->clock[number]));
  }
  tell_host(event->clock);
  return cudaSuccess;
}
