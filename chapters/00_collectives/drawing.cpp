#include "drawing.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace shard::primer {

std::string padded(const std::string& text, int width) {
  return text + std::string(static_cast<std::size_t>(std::max(0, width - width_of(text))), ' ');
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

Lines split_lines(const std::string& text) {
  Lines lines;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string written(float value, Ink ink, int devices) {
  std::string digits = fmt::format("{:02.0f}", value);
  if (ink == Ink::numbers) return digits;
  digits = fmt::format("{:0{}.0f}", value, devices);
  std::string text;
  for (char c : digits) text += c == '0' ? "·" : std::string(1, c);
  return text;
}

std::string written(const Tensor& t, Ink ink, int devices, Index arrived) {
  if (t.size() == 0) return "nothing\n";
  const std::vector<float> values = t.to_host();
  std::string text;
  for (Index i = 0; i < t.extent(0); ++i) {
    if (arrived >= 0) text += i == arrived ? "→" : " ";
    for (Index j = 0; j < t.extent(1); ++j) {
      if (j > 0) text += ' ';
      text += written(values[static_cast<std::size_t>(i * t.extent(1) + j)], ink, devices);
    }
    text += '\n';
  }
  return text;
}

namespace {

int widest_of(const Lines& lines) {
  int widest = 0;
  for (const std::string& line : lines) widest = std::max(widest, width_of(line));
  return widest;
}

/// In a box, or, where there is no room for one, below an empty line.
Lines framed(const Lines& lines, bool in_box) {
  const int width = widest_of(lines);
  Lines framed = {in_box ? "┌" + repeated("─", width + 2) + "┐" : ""};
  for (const std::string& line : lines) framed.push_back(in_box ? "│ " + padded(line, width) + " │" : line);
  if (in_box) framed.push_back("└" + repeated("─", width + 2) + "┘");
  return framed;
}

/// Columns of devices [first, last), `width` each.
std::string band(const std::vector<Row>& rows, int first, int last, int width) {
  std::string text;
  for (const Row& row : rows) {
    std::size_t height = 0;
    for (int d = first; d < last; ++d)
      height = std::max(height, row.cells[static_cast<std::size_t>(d)].size());
    for (std::size_t i = 0; i < height; ++i) {
      const bool labelled = i == (row.is_boxed ? 1 : 0);
      std::string line = padded(labelled ? row.label : "", label_width);
      for (int d = first; d < last; ++d) {
        const Lines& cell = row.cells[static_cast<std::size_t>(d)];
        line += padded(i < cell.size() ? cell[i] : "", width + gap);
      }
      text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
    }
  }
  return text;
}

}  // namespace

std::string draw(std::vector<Row> rows, int devices) {
  Row header;
  for (int d = 0; d < devices; ++d) header.cells.push_back({fmt::format("device {}", d)});
  rows.insert(rows.begin(), header);
  auto widest = [&](int frame) {
    int width = 0;
    for (const Row& row : rows)
      for (const Lines& cell : row.cells)
        width = std::max(width, widest_of(cell) + (row.is_boxed ? frame : 0));
    return width;
  };
  auto how_many_fit = [](int width) {
    return std::max(1, (drawing_columns() - label_width + gap) / (width + gap));
  };
  const bool has_boxes = how_many_fit(widest(4)) >= devices || how_many_fit(widest(0)) < devices;
  const int width = widest(has_boxes ? 4 : 0);
  for (Row& row : rows)
    if (row.is_boxed)
      for (Lines& cell : row.cells) cell = framed(cell, has_boxes);
  const int bands = (devices + how_many_fit(width) - 1) / how_many_fit(width);
  std::string text;
  for (int b = 0; b < bands; ++b) {
    const Range shown = part(devices, bands, b);
    if (b > 0) text += '\n';
    text += band(rows, static_cast<int>(shown.begin), static_cast<int>(shown.end), width);
  }
  return text;
}

}  // namespace shard::primer
