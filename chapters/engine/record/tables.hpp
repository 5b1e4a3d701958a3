#pragma once

/// Tables of a record: what many events share is written once, and events have its number.

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/record/log.hpp"

namespace shard {

/// Different values, numbered from 0 in the order in which they were first asked for.
class NumberedValues {
 public:
  Index number_of(const Entry& value);
  const Entry& all() const { return all_; }

 private:
  std::unordered_map<std::string, Index> numbers_;
  Entry all_ = Entry::array();
};

/// All tables of a record.
struct Tables {
  NumberedValues files, lines, groups, contexts, what, sends;

  /// The number of "FILE:LINE"; nothing for no line.
  std::optional<Index> line(const std::string& text);
};

/// How tensors lie. Devices that do the same have layouts that differ in this device's part alone: these are one
/// layout, with a part for each device.
class Layouts {
 public:
  /// The number of a layout of this device. The first different part that a device has with these letters is the first
  /// one of the others, too.
  Index number_of(int device, const Entry& axes, const Entry& letters, const Entry& whole, const Entry& mine);
  /// Whether a tensor of this shape may lie so on this device: it may have been reshaped since.
  bool fits(int device, Index number, const Entry& shape) const;
  const Entry& all() const { return all_; }

 private:
  std::unordered_map<std::string, std::vector<Index>>
      like_;  // numbers by letters and shape, the k-th of each device
  Entry all_ = Entry::array();
};

}  // namespace shard
