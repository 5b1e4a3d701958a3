#pragma once

/// The floor of a chapter's step on the CPU: its matrix products straight through the BLAS, the same bytes
/// straight through MPI, in memory that is there already, and nothing else.

#include <mpi.h>

#include <map>
#include <vector>

#include "tests/benchmarks/backend.hpp"
#include "tests/benchmarks/emu_recorder.hpp"

namespace shard::bench {

/// Recorded steps, ready to be made again. What lay at one address does so again, though elsewhere: the floor
/// finds in its caches what the chapter found. Collectives that the chapter leaves in flight while it
/// computes are waited for here.
class EmuFloor : public Floor {
 public:
  /// A collective.
  explicit EmuFloor(const Steps& steps);

  /// Renews memory whose numbers have grown too large: over the repetitions, sums of sums.
  void prepare() override;
  /// A collective.
  void run() override;

 private:
  /// Element counts of everybody's parts, as MPI wants them.
  struct Parts {
    std::vector<int> counts, offsets;
    explicit Parts(std::vector<int> all = {});
  };
  /// A product, and where its result goes.
  struct RawProduct {
    Product product;
    float* c;
  };
  /// An exchange with all that MPI wants to know.
  struct Raw {
    Collective call;
    MPI_Comm comm;
    bool receives, is_posted;
    float* in;
    float* out;
    int in_size, out_size, to, from;
    Parts parts, received;
    MPI_Request request;  ///< of a posted message
  };

  void reserve(const float* recorded, Index elements);
  float* memory(const float* recorded);
  Raw raw(const Exchange& exchange);
  static void run_product(const RawProduct& product);
  static void run_message(Raw& r);
  static void run_collective(const Raw& r);

  std::map<const float*, Tensor> memory_;  // by the address at which it was recorded
  std::vector<std::variant<RawProduct, Raw, Wait>> steps_;
};

}  // namespace shard::bench
