#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engines/trainable.hpp"

namespace shard {

/// A part, and the device that writes it.
struct PlannedPart {
  Ranges ranges;
  int writer = 0;
};

/// A tensor, in parts that tile it. No part is empty.
struct PlannedTensor {
  Shape shape;
  std::vector<PlannedPart> parts;

  Index elements() const { return num_elements(shape); }
};

/// Chooses the device that writes each part of each tensor, by name; the same on all devices. Of the devices
/// that hold a part, the one with the least to write so far writes it. So devices that all hold everything
/// share the work evenly. A collective. \throws Error internal when parts do not tile a tensor
std::map<std::string, PlannedTensor> plan_writing(Communicator& group, const std::vector<Trainable>& held);

/// Sends a tensor to device 0, which calls `take` with its elements in row-major order, piece by piece. No
/// message and no buffer is larger than 256 KiB, or than one row if that is larger. Device 0 needs no more
/// memory if the parts are whole rows, else it holds the tensor. `mine`: the part that this device holds, or
/// null. A collective.
void gather_on_first(Communicator& group, const PlannedTensor& tensor, const Trainable* mine,
                     const std::function<void(std::span<const float>)>& take);

}  // namespace shard
