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
  std::shared_ptr<Workload> foreign;       ///< the network, where another library's folder says which

  /// The network whose parameters these are. \throws Error file
  std::shared_ptr<Workload> network_of(const WorkloadKind& kind, const Options& options) const {
    return foreign ? foreign : kind.read(*checkpoint, options);
  }

  /// A result as it belongs beside the stored parameters: a parameter's gradient has its name and shape.
  std::pair<std::string, HostTensor> as_stored(const std::string& name, HostTensor result) const;
  /// The network's hint about an input of this width. Nothing where parameters were turned as they were read:
  /// then their shapes are right.
  std::string input_hint(const Workload& network, Index width) const {
    return stored_as.empty() ? network.input_hint(width) : "";
  }
};

/// A file; or a folder as another library writes it: of a whole network, or of a block in it.
/// \throws Error file when they cannot be read; usage when a folder is given without a block to a chapter that
/// takes one, or a block without a folder
Parameters open_parameters(Communicator& group, const WorkloadKind& kind, const Arguments& arguments);

}  // namespace shard
