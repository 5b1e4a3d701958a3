#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/checkpoint.hpp"
#include "engine/host_tensor.hpp"

namespace shard {

/// Parameters that already lie in the host's memory: those of an exact problem, say. `source` is their name
/// in messages.
std::unique_ptr<Checkpoint> host_checkpoint(std::map<std::string, HostTensor> tensors, std::string source);

}  // namespace shard
