#pragma once

/// What a device computes and sends while something runs, as a list. Products are heard of by an observer,
/// and calls by a communicator around the engine's group: no chapter knows of it, so a chapter that is added
/// needs nothing for it.

#include <mpi.h>

#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "engine/device/observer.hpp"
#include "tests/benchmarks/backend.hpp"

namespace shard::bench {

/// c = a b + keep c, where a is (m, k) and b (k, n); either may lie transposed.
struct Product {
  bool a_is_transposed, b_is_transposed;
  int m, n, k;
  const float* a;
  int row_length_a;
  const float* b;
  int row_length_b;
  float keep;
  const float* c;
};

/// A call of the Communicator. Sizes are in elements.
struct Exchange {
  Collective call;
  MPI_Comm comm;               ///< of the group in which it was made
  const float* in = nullptr;   ///< the argument
  const float* out = nullptr;  ///< the result; `send_async`: dst
  Index in_size = 0;
  Index out_size = 0;
  int peer = -1;              ///< target, source or root, as the group counts; -1: none
  bool receives = false;      ///< `receive`, which has no name of its own among the collectives
  bool is_posted = false;     ///< `post_send`, `post_receive`: a Wait follows
  std::vector<Index> counts;  ///< in a reduce-scatter or all-to-all: for each device
};

/// For what was posted in step number `posted` of the list.
struct Wait {
  std::size_t posted;
};

using Steps = std::vector<std::variant<Product, Exchange, Wait>>;

/// The emulator's recorder. Its group, and what that is split into, list their calls while `record` runs, and
/// only pass them on otherwise.
class EmuRecorder : public Recorder, private Observer {
 public:
  /// A collective.
  explicit EmuRecorder(Communicator& group);

  Communicator& group() override { return *group_; }
  std::unique_ptr<Floor> floor_of(const std::function<void()>& step) override;

  /// What this device did in `run`, in order; an asynchronous call where it was started. Addresses are of
  /// memory that may be gone. \throws Error internal when the emulator counted other products or calls
  Steps record(const std::function<void()>& run);

 private:
  void product(Operand a, Operand b, const Tensor& c, bool accumulates) override;

  std::shared_ptr<Steps> steps_;  // while something is recorded
  std::unique_ptr<Communicator> group_;
};

}  // namespace shard::bench
