#pragma once

/// What the parts of the double share.

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "cuda_runtime.h"

namespace cuda_double {

/// Ends the program with code 70 and one line.
[[noreturn]] void violation(const std::string& what);
/// The error planted for this call, or 0.
int planted(const char* call);
/// While a group of NCCL is open, nothing else may be called that waits or orders.
extern int open_groups;
void require_no_open_group(const char* call);

/// Things that a program must give back.
void gained(const char* kind, const void* thing);
/// It must be there. \p call: what it is there for.
void require_there(const char* kind, const void* thing, const char* call);
void given_back(const char* kind, const void* thing, const char* call);

/// How far each queue has got, as far as somebody knows.
using Clock = std::map<int, std::uint64_t>;
/// Whether the host knows that a queue has got so far.
bool host_knows(int queue, std::uint64_t tick);
/// Copies to the host's memory that the host now knows to be done: only now does it find them there.
void deliver();

/// Does what can be done of what is queued.
void progress();
/// Whether a queue still has something to do.
bool is_busy(cudaStream_t queue);

bool overlap(const Access& a, const Access& b);
/// Whether this is an address that the program knows device memory by.
bool is_of_device(const void* data);
/// An access at the queue's present time. It ends the program unless what it must not meet is over by then.
void check_order(const Access& access, cudaStream_t queue, const char* what);

}  // namespace cuda_double

struct CUstream_st {
  int number;
  cuda_double::Clock clock;
  std::deque<std::function<bool()>> work;
};

/// An error planted for a CUDA call, or its leaving out, ends it here.
#define PLANTED(call)                                 \
  if (const int error = ::cuda_double::planted(call)) \
  return static_cast<cudaError_t>(error == ::cuda_double::left_out ? 0 : error)
