#pragma once

/// What a device computes and sends while something runs, as a list. The programs that use it are linked so
/// that the chapters' calls of `world()` and the emulator's of `cblas_sgemm` come by here (see
/// tests/CMakeLists.txt): neither knows of it, so a chapter that is added needs nothing for it.

#include <functional>
#include <variant>
#include <vector>

#include "engine/device/device.hpp"

namespace shard::bench {

/// The arguments of cblas_sgemm: c = alpha a b + beta c, where a is (m, k) and b (k, n).
struct Product {
  int order, transpose_a, transpose_b, m, n, k;
  float alpha;
  const float* a;
  int row_length_a;
  const float* b;
  int row_length_b;
  float beta;
  float* c;
  int row_length_c;
};

/// A call of the Communicator. Sizes are in elements.
struct Exchange {
  Collective call;
  const float* in = nullptr;   ///< the argument
  const float* out = nullptr;  ///< the result; `send_async`: dst
  Index in_size = 0;
  Index out_size = 0;
  int peer = -1;              ///< target, source or root; -1: none
  bool receives = false;      ///< `receive`, which has no name of its own among the collectives
  bool is_posted = false;     ///< `post_send`, `post_receive`: a Wait follows
  std::vector<Index> counts;  ///< in a reduce-scatter or all-to-all: for each device
};

/// For what was posted in step number `posted` of the list.
struct Wait {
  std::size_t posted;
};

using Step = std::variant<Product, Exchange, Wait>;

/// What this device did in `run`, in order; an asynchronous call where it was started. Addresses are of
/// memory that may be gone. \throws Error internal when the emulator counted other products or calls
std::vector<Step> record(const std::function<void()>& run);

}  // namespace shard::bench
