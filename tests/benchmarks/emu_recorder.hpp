#pragma once

/// Records what a device computes and sends, as a list. An observer gets the products, and a communicator
/// around the engine's group gets the calls. Chapters know nothing of it, so a new chapter needs no code for
/// it.

#include <mpi.h>

#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "engine/device/books/observer.hpp"
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
  MPI_Comm comm;               ///< of the group that made it
  const float* in = nullptr;   ///< the argument
  const float* out = nullptr;  ///< the result; `send_async`: dst
  Index in_size = 0;
  Index out_size = 0;
  int peer = -1;              ///< target, source or root, as a place in the group; -1: none
  bool receives = false;      ///< a `receive`, which is no kind of Collective
  bool is_posted = false;     ///< a `post_send` or `post_receive`, with a Wait later
  std::vector<Index> counts;  ///< of a reduce-scatter or all-to-all, by device
};

/// The wait for the message posted in step `posted` of the list.
struct Wait {
  std::size_t posted;
};

using Steps = std::vector<std::variant<Product, Exchange, Wait>>;

/// The emulator's recorder. Its group, and groups split from it, record their calls while `record` runs, and
/// otherwise only forward them.
class EmuRecorder : public Recorder, private Observer {
 public:
  /// A collective.
  explicit EmuRecorder(Communicator& group);

  Communicator& group() override { return *group_; }
  std::unique_ptr<Floor> floor_of(const std::function<void()>& step) override;

  /// The products and calls of this device in `run`, in order; an asynchronous call where it starts.
  /// Addresses may be of freed memory. \throws Error internal when the emulator counted others
  Steps record(const std::function<void()>& run);

 private:
  void product(Operand a, Operand b, const Tensor& c, bool accumulates) override;

  std::shared_ptr<Steps> steps_;  // set while something is recorded
  std::unique_ptr<Communicator> group_;
};

}  // namespace shard::bench
