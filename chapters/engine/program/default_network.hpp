#pragma once

#include "engine/program/registry.hpp"

namespace shard {

/// Options of a network that all variants accept, so that their curves can be compared, or at least this one: the
/// given options, and the sizes that need more than their defaults on so many devices.
Options with_default_network(int devices, const Chapter& chapter, const Variant& variant,
                             const Options& given);
/// The network of the file `config`, or else of the options. \throws Error file; usage for an option that config.json
/// determines
std::shared_ptr<Workload> network_of(const WorkloadKind& kind, const Options& options,
                                     const std::string& config = "");

}  // namespace shard
