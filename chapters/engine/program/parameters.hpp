#pragma once

/// The parameters that --params and --block name.

#include <memory>
#include <string>
#include <utility>

#include "engine/foreign_model.hpp"
#include "engine/program/commands.hpp"

namespace shard {

struct Parameters {
  std::unique_ptr<Checkpoint> checkpoint;  ///< under our names, in our shapes
  ForeignNames stored_as;                  ///< where they are stored under other names

  /// A result as it belongs beside the stored parameters: a parameter's gradient has its name and shape.
  std::pair<std::string, HostTensor> as_stored(const std::string& name, HostTensor result) const;
  /// The network's hint about an input of this width. Nothing where parameters were turned as they were read:
  /// then their shapes are right.
  std::string input_hint(const Workload& network, Index width) const {
    return stored_as.empty() ? network.input_hint(width) : "";
  }
};

/// \throws Error file when they cannot be read; usage when a folder is given without a block, or a block
/// without a folder
Parameters open_parameters(const WorkloadKind& kind, const Arguments& arguments);

}  // namespace shard
