#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/program/command.hpp"
#include "engine/weights/checkpoint.hpp"
#include "engine/weights/foreign_model.hpp"

namespace shard {

/// What a command line says of the parameters to read.
struct ParametersGiven {
  std::string path = {};
  std::optional<std::string> block = {};
  bool unverified = false;  ///< digests are not compared
};

/// Adds its options.
void add_parameters(const CommandLine& line, ParametersGiven& given);

/// The parameters that --params and --block name.
struct Parameters {
  std::unique_ptr<Checkpoint> checkpoint;  ///< under our names, in our shapes
  ForeignNames stored_as;                  ///< the stored names that differ from ours
  std::shared_ptr<Workload> foreign;       ///< the network, if another library's folder describes it
  Options options;                         ///< those given, and those of the network of a checkpoint of ours

  /// The network that has these parameters. \throws Error file
  std::shared_ptr<Workload> network_of(const WorkloadKind& kind) const;
  /// A result under the stored name of its parameter, and in the stored shape.
  std::pair<std::string, HostTensor> as_stored(const std::string& name, HostTensor result) const;
  /// The network's hint about an input of this width. Empty where parameters were transposed when they were
  /// read: then their shapes are right.
  std::string input_hint(const Workload& network, Index width) const;
};

/// Opens a file, or a folder of another library with a whole network, or one block of it. \throws Error file
/// when they cannot be read; usage when a chapter that reads blocks gets a folder without a block, or a block
/// without a folder
Parameters open_parameters(Communicator& group, const Variant& variant, const Options& options,
                           const ParametersGiven& given);

/// Parameters in an engine that this variant has made of them.
struct Opened {
  Parameters params;
  std::shared_ptr<Workload> network;
  std::unique_ptr<ShardedEngine> engine = {};

  /// Makes the engine and loads the parameters.
  void load(Communicator& group, const Variant& variant);
};
/// Opens them, without an engine. \throws Error as open_parameters does; usage where the variant refuses the network
Opened opened(Communicator& group, const Variant& variant, const Options& options,
              const ParametersGiven& given);

}  // namespace shard
