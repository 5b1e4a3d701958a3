#pragma once

/// Functions that the parts of the double share.

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "cuda_runtime.h"

namespace cuda_double {

/// Ends the program with code 70 and one line.
[[noreturn]] void violation(const std::string& what);
/// Ends the program if a group of NCCL is open: no function that waits or orders work may be called then.
extern int open_groups;
void require_no_open_group(const char* call);

/// Counts a call, or so many of them. With CUDA_DOUBLE_COUNTS in the environment, a program prints its counts when it ends.
void count(const char* call, int times = 1);
/// Objects that a program must free.
void gained(const char* kind, const void* thing);
/// Ends the program if `thing`, which `call` needs, does not exist.
void require_there(const char* kind, const void* thing, const char* call);
void given_back(const char* kind, const void* thing, const char* call);

/// A vector clock: how much of the work of each stream is known to be done.
using Clock = std::map<int, std::uint64_t>;
/// Whether the host knows that a stream has done its work up to this tick.
bool host_knows(int stream, std::uint64_t tick);
/// Completes the copies to the host's memory that the host now knows to be done. It cannot read them before.
void deliver();

/// Forgets the copies from page-locked memory that is freed.
void forget_sources(const void* begin, const void* end);

/// Does all launched work that need not wait.
void progress();
/// Waits in a call, while streams progress. Ends the program if this takes too long.
void block_host(const std::string& call, const std::function<bool()>& is_done);
/// Waits in a call until all work of all streams is done: NCCL's and cuBLAS's creation, and what frees memory, do so with
/// an H200's driver (docs/cuda.md).
void wait_for_gpu(const std::string& call);
/// How long a call may wait for its peers. The default is long enough for a machine that is busy.
std::chrono::seconds patience();
/// Whether a stream still has work to do.
bool is_busy(cudaStream_t stream);

bool overlap(const Access& a, const Access& b);
/// Whether this is an address of device memory, as the program sees it.
bool is_of_device(const void* data);
/// The memory that NCCL takes for its buffers, which no allocation of the program shows.
extern std::size_t buffers_of_nccl;
/// Whether it is in page-locked memory of the host.
bool is_page_locked(const void* data);
/// Records an access at the current time of a stream. Ends the program if an earlier conflicting access may
/// not be done by then.
void check_order(const Access& access, cudaStream_t stream, const char* what);

}  // namespace cuda_double

struct CUstream_st {
  int number;
  cuda_double::Clock clock;
  std::deque<std::function<bool()>> work;
};

/// Returns from a CUDA call if an error is planted for it, or if the call is to be left out.
#define PLANTED(call)                                 \
  if (const int error = ::cuda_double::planted(call)) \
  return static_cast<cudaError_t>(error == ::cuda_double::left_out ? 0 : error)
