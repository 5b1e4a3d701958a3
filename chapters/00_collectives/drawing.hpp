#pragma once

/// Devices side by side as text: a column for each, a box around what it holds. Nothing here communicates.

#include <string>
#include <vector>

#include "engine/basics/terminal.hpp"
#include "engine/device/device.hpp"

namespace shard::primer {

using Lines = std::vector<std::string>;

/// How a number is written: as it is, or as a sum of addends: a digit for each device in device order, with a
/// dot where a device's addend is missing.
enum class Ink { numbers, addends };

/// One row of a picture: the same thing on every device.
struct Row {
  std::string label;
  std::vector<Lines> cells;  ///< of each device
  bool is_boxed = false;
};

inline constexpr int label_width = 12;
inline constexpr int gap = 2;

std::string padded(const std::string& text, int width);
std::string repeated(const std::string& text, int times);
Lines split_lines(const std::string& text);

/// One number: "07", or "·7··".
std::string written(float value, Ink ink, int devices);
/// A matrix, one line per row; row `arrived`, if there is one, gets an arrow. "nothing" when it is empty.
std::string written(const Tensor& t, Ink ink, int devices, Index arrived = -1);

/// The picture of all devices. Where boxes make it too wide for the page they are left out, and where that is
/// not enough, the devices are drawn some below the others.
std::string draw(std::vector<Row> rows, int devices);

}  // namespace shard::primer
