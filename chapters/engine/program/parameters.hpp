#pragma once

/// The parameters that --params and --block name.

#include <memory>
#include <string>
#include <utility>

#include "engine/program/commands.hpp"
#include "engine/weights/foreign_model.hpp"

namespace shard {

struct Parameters {
  std::unique_ptr<Checkpoint> checkpoint;  ///< under our names, in our shapes
  ForeignNames stored_as;                  ///< the stored names that differ from ours
  std::shared_ptr<Workload> foreign;       ///< the network, if another library's folder describes it

  /// The network that has these parameters. \throws Error file
  std::shared_ptr<Workload> network_of(const WorkloadKind& kind, const Options& options) const {
    return foreign ? foreign : kind.read(*checkpoint, options);
  }

  /// A result under the stored name of its parameter, and in the stored shape.
  std::pair<std::string, HostTensor> as_stored(const std::string& name, HostTensor result) const;
  /// The network's hint about an input of this width. Empty where parameters were transposed when they were
  /// read: then their shapes are right.
  std::string input_hint(const Workload& network, Index width) const {
    return stored_as.empty() ? network.input_hint(width) : "";
  }
};

/// Opens a file, or a folder of another library with a whole network, or one block of it. \throws Error file
/// when they cannot be read; usage when a chapter that reads blocks gets a folder without a block, or a block
/// without a folder
Parameters open_parameters(Communicator& group, const WorkloadKind& kind, const Arguments& arguments);

}  // namespace shard
