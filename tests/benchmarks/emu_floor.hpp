#pragma once

/// The floor of a chapter's step on the CPU: only its matrix products, each by the fastest library that is
/// installed, whichever the chapter had, and its messages, by MPI,
/// in memory that is already allocated.

#include <mpi.h>

#include <map>
#include <tuple>
#include <vector>

#include "emu/products/products.hpp"
#include "tests/benchmarks/backend.hpp"
#include "tests/benchmarks/emu_recorder.hpp"

namespace shard::bench {

/// Repeats recorded steps. Tensors that shared an address share one here too, so caches hold the same data as
/// in the chapter. Collectives in flight during a computation are waited for first.
class EmuFloor : public Floor {
 public:
  /// A collective.
  explicit EmuFloor(const Steps& steps);

  /// Rewrites memory whose numbers have grown too large: sums are added up in each repetition.
  void prepare() override;
  /// A collective.
  void run() override;
  /// The library that makes most of its operations.
  std::string products_by() const override;

 private:
  /// Element counts of all devices' parts, in MPI's types.
  struct Parts {
    std::vector<int> counts, offsets;
    explicit Parts(std::vector<int> all = {});
  };
  /// A product, and the library that makes it.
  struct RawProduct {
    emu::MatrixProduct product;
    const emu::ProductLibrary* library;
  };
  /// An exchange, with all arguments for MPI.
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
  const emu::ProductLibrary* fastest_of(const emu::MatrixProduct& product);
  static void run_message(Raw& r);
  static void run_collective(const Raw& r);

  std::map<const float*, Tensor> memory_;  // by recorded address
  std::map<std::tuple<bool, bool, int, int, int>, const emu::ProductLibrary*> fastest_;
  std::vector<std::variant<RawProduct, Raw, Wait>> steps_;
};

}  // namespace shard::bench
