#pragma once

#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard {

/// The number of choices of each expert in one global batch. A mixture's costs depend on it.
struct RoutedCounts {
  int devices = 0;  ///< that share the batch; 1: it is not divided
  Index top_k = 0;
  Index num_experts = 0;
  std::vector<Index> chosen;  ///< (devices, top_k, experts): choices of a device's tokens, by rank and expert
  std::vector<Index> kept;    ///< the same for choices that found a slot

  Index at(const std::vector<Index>& counts, int device, Index rank, Index expert) const {
    return counts[static_cast<std::size_t>((device * top_k + rank) * num_experts + expert)];
  }
  /// The kept choices of a device's tokens for one expert, and of all devices' tokens.
  Index kept_from(int device, Index expert) const;
  Index kept_for(Index expert) const;
  /// The choices of all devices' tokens for one expert, before any was dropped.
  Index chosen_for(Index expert) const;
  /// The counts of `devices` devices, from device `begin` on.
  RoutedCounts of_devices(int begin, int devices) const;
  bool operator==(const RoutedCounts&) const = default;
};

/// An interface of a mixture's engines: where their tokens went.
class RoutesTokens {
 public:
  virtual ~RoutesTokens() = default;
  /// The choices of the last forward pass.
  virtual const RoutedCounts& routed() const = 0;
  /// The number of copies of each expert. Each copy serves the same number of consecutive devices.
  virtual int copies() const { return 1; }
};

/// How evenly experts and devices are used, over many batches.
class ExpertBalance {
 public:
  /// Adds a batch. Each expert has `copies` copies.
  void add(const RoutedCounts& counts, int copies = 1);
  /// Some lines: each expert's share of the choices, the dropped choices, and the load of the busiest device.
  std::string describe() const;

 private:
  /// The number of kept choices of the device that has the most.
  double busiest() const;

  int devices_ = 0;
  std::vector<Index> chosen_;             // by expert
  std::vector<std::vector<Index>> kept_;  // by copy and expert
};

/// The experts that tokens chose, step by step.
class Journal {
 public:
  /// Adds a step. `chosen`: the choices that rounding can change. After such a change, two runs train
  /// different networks.
  void add(const RoutedCounts& counts, std::vector<Index> chosen, int copies = 1) {
    balance_.add(counts, copies);
    decisions_.push_back(std::move(chosen));
  }
  /// The choices of each step.
  const std::vector<std::vector<Index>>& decisions() const { return decisions_; }
  /// Some lines for people.
  std::string describe() const { return decisions_.empty() ? "" : balance_.describe(); }

 private:
  ExpertBalance balance_;
  std::vector<std::vector<Index>> decisions_;
};

}  // namespace shard
