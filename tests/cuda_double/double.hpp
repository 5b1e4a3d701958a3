#pragma once

/// What the parts of the double share.

#include <string>

#include "cuda_runtime.h"

namespace cuda_double {

/// Ends the program with code 70 and one line.
[[noreturn]] void violation(const std::string& what);
/// The error planted for this call, or 0.
int planted(const char* call);
/// Does what can be done of what is queued.
void progress();
/// While a group of NCCL is open, nothing else may be called that waits or orders.
extern int open_groups;
void require_no_open_group(const char* call);

/// Things that a program must give back.
void gained(const char* kind, const void* thing);
/// \p verb: what is being done with it. It must be there.
void require_there(const char* kind, const void* thing, const char* call);
void given_back(const char* kind, const void* thing, const char* call);

/// Whether a queue still has something to do.
bool is_busy(cudaStream_t queue);

}  // namespace cuda_double
