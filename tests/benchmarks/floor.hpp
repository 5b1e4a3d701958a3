#pragma once

/// The floor of a chapter's step: its matrix products straight through the BLAS, the same bytes straight
/// through MPI, in memory that is there already, and nothing else.

#include <map>
#include <vector>

#include "tests/benchmarks/recorder.hpp"

namespace shard::bench {

/// Recorded steps, ready to be made again. Operands that lay at one address do so again, though elsewhere.
/// Calls that the chapter leaves in flight while it computes wait here.
class Floor {
 public:
  /// A collective.
  explicit Floor(const std::vector<Step>& steps);

  /// Renews memory whose numbers have grown too large: sums of sums, over the repetitions.
  void prepare();
  /// A collective.
  void run();

 private:
  /// Element counts of everybody's parts, as MPI wants them.
  struct Parts {
    std::vector<int> counts, offsets;
    explicit Parts(std::vector<int> all = {});
    int sum() const { return counts.empty() ? 0 : counts.back() + offsets.back(); }
  };
  /// An exchange with all that MPI wants to know.
  struct Raw {
    Exchange exchange;
    int in, out, to, from;
    Parts parts, received;
  };

  static Raw raw(const Exchange& exchange);
  void run_exchange(const Raw& r);

  std::map<const float*, Tensor> operands_;  // by the address at which they were recorded
  Tensor in_, out_;                          // of all exchanges
  std::vector<std::variant<Product, Raw>> steps_;
};

}  // namespace shard::bench
