#pragma once

/// The network that a checkpoint describes: written once, and taken by each command that reads it.

#include "engine/checkpoints/manifest.hpp"
#include "engine/workloads/workload.hpp"

namespace shard {

/// Who says the options that shapes of parameters determine, such as --layers.
enum class SizesFrom { options, shapes };

/// The options that make a network of this kind: all but those of its data. An option that names a file is
/// there if it was given. With SizesFrom::shapes, so are the sizes.
NetworkRecord record_of(const std::string& network, const WorkloadKind& kind, const Options& options,
                        SizesFrom sizes);

/// The given options, and those of the network of a checkpoint, `folder`, which a variant is to read. An option
/// that names a file may differ. \throws Error usage where a given option contradicts the checkpoint, where the
/// variant has no such network, or where neither says an option that the network has; file
Options with_network_of(const Manifest& manifest, const std::string& folder, const WorkloadKind& kind,
                        const std::string& variant, Options given, SizesFrom sizes);

}  // namespace shard
