#pragma once

/// Which rows of the batch count on which device in a step. A wrong gradient may be the sum over some of them. What has
/// happened in the step says which sums an engine can have left out: it needs no name of a strategy.

#include <map>
#include <string>
#include <vector>

#include "engine/engines/sharded_engine.hpp"
#include "engine/proof/compare.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// The rows of a step, and the results of some of them alone.
///
/// The loss has seen a device's rows, once for each micro-batch. Where it has seen all rows on all devices, an
/// engine may still divide them in between, if it sends tensors by all_gather, reduce_scatter or all_to_all: then the
/// gradient of a parameter that all devices have is a sum over the devices, too.
///
/// Where an output is wrong, its gradients are wrong for the same reason. So gradients are explained by rows only if
/// all outputs are right.
class RowsOfStep {
 public:
  /// What this device has seen in the step. `moves`: whether it has sent tensors by all_gather, reduce_scatter or
  /// all_to_all. A collective.
  RowsOfStep(Communicator& group, const ExactProblem& problem, const std::vector<OutputRows>& output,
             const std::map<std::string, Placed>& gradients, const Solution& expected, bool moves);

  /// Each device's rows, if this gradient is a sum over devices with different rows. This device comes first of those
  /// that have the same rows.
  std::vector<RowsAlone> by_device(const std::string& gradient);
  /// The rows of each micro-batch on all devices, if there are several: "first", "2nd", "last".
  std::vector<RowsAlone> by_piece(const std::string& result);

 private:
  using Rows = std::vector<Range>;
  /// What the devices tell one another.
  struct Seen {
    std::vector<Rows> pieces;       ///< of the loss, by device
    bool are_outputs_right = true;  ///< of all devices
    bool moves = false;             ///< any device
    std::map<std::string, std::vector<Rows>>
        worked{};  ///< for each gradient: rows by device, none where it is not
  };

  Rows rows_for(const Placed& gradient) const;
  const WholeResults* solved(const Rows& counted);

  Communicator& group_;
  const ExactProblem& problem_;
  Seen seen_;
  std::map<std::vector<std::pair<Index, Index>>, WholeResults> solved_;
};

/// The messages that this device has sent so far by all_gather, reduce_scatter or all_to_all.
Index moved_so_far();

/// What may explain wrong results of a step of this problem. `rows` must outlive it.
Background background_of(const ExactProblem& problem, RowsOfStep& rows, Communicator& group);

}  // namespace shard
