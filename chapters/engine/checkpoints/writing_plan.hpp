#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/ranges.hpp"

namespace shard {

/// A part of a tensor that this device holds, and could write to a file. Rows of a tensor that outlives it.
struct HeldPart {
  std::string name;
  Shape whole;
  Ranges ranges;
  Rows rows;
};

/// A part, and the device that writes it: one of those that hold it.
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

/// Which device writes which part of which tensor, by name; the same on all devices. Of several devices that
/// hold the same part, the one writes it that has the least to write so far. So where every device holds
/// everything, each writes its share. A collective. \throws Error internal when parts do not tile a tensor
std::map<std::string, PlannedTensor> plan_writing(Communicator& group, const std::vector<HeldPart>& held);

}  // namespace shard
