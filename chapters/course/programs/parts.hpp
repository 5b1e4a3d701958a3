#pragma once

/// What a device leaves for the grader: its parts of the results, and figures of the step.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/basics/ranges.hpp"
#include "engine/device/books/ledger.hpp"
#include "engine/layouts/placed.hpp"

namespace shard::course {

/// A device's part of a tensor, and the index along each axis at which it begins.
struct Part {
  Shape begin;
  HostTensor values;
};

/// Results and figures of one device.
class Parts {
 public:
  /// Nothing where the device holds no part.
  void add(const std::string& name, const Placed& placed) {
    if (placed.is_here()) parts_[name] = {placed.begin(), {placed.local().shape(), placed.local().to_host()}};
  }
  void add(const std::string& name, Part part) { parts_[name] = std::move(part); }
  /// A number, such as the bytes that were sent.
  void add_figure(const std::string& name, Index value) { figures_[name] = value; }

  void add_figures(const Traffic& sent) {
    add_figure("bytes", sent.bytes);
    add_figure("messages", sent.messages);
  }

  /// What the engine says of its last step for people to read.
  void describe(std::string text) { described_ = std::move(text); }

  /// Writes device_K.safetensors, and device_K.json: {"begin": {NAME: [..]}, "figures": {NAME: N}, "described": TEXT}.
  /// \throws Error file
  void write(const std::string& folder, int device) const;

 private:
  std::map<std::string, Part> parts_;
  std::map<std::string, Index> figures_;
  std::string described_;
};

/// What a program does with the problem in a folder: its results go into `out`. Each program has its own. The
/// main function of all is in parts.cpp.
void run(Communicator& world, const std::string& folder, const std::string& out);

}  // namespace shard::course
