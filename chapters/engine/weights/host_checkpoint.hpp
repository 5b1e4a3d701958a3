#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/basics/host_tensor.hpp"
#include "engine/weights/checkpoint.hpp"

namespace shard {

/// Parameters in the host's memory, such as those of an exact problem. `source` names them in messages.
std::unique_ptr<Checkpoint> host_checkpoint(std::map<std::string, HostTensor> tensors, std::string source);

}  // namespace shard
