#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/basics/ranges.hpp"

namespace shard {

/// A part of a tensor that this device holds, and could write to a file. The tensor must outlive it.
struct HeldPart {
  std::string name;
  Shape whole;
  Ranges ranges;
  Rows rows;
};

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
std::map<std::string, PlannedTensor> plan_writing(Communicator& group, const std::vector<HeldPart>& held);

}  // namespace shard
