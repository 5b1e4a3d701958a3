#pragma once

#include <string>
#include <vector>

#include "engine/device/device.hpp"

namespace shard {

/// How many choices of one global batch each expert got. The costs of a mixture depend on it.
struct RoutedCounts {
  int devices = 0;  ///< that the batch is divided over; 1: it is not
  Index top_k = 0;
  Index num_experts = 0;
  std::vector<Index> chosen;  ///< (devices, top_k, experts): choices of a device's tokens, by rank and expert
  std::vector<Index> kept;    ///< the same, of those that found a slot

  Index at(const std::vector<Index>& counts, int device, Index rank, Index expert) const {
    return counts[static_cast<std::size_t>((device * top_k + rank) * num_experts + expert)];
  }
  /// Kept choices of a device's tokens for one expert, and of all devices' tokens.
  Index kept_from(int device, Index expert) const;
  Index kept_for(Index expert) const;
  /// Choices of all devices' tokens for one expert, before any was dropped.
  Index chosen_for(Index expert) const;
  /// The same counts of `devices` devices, from device `begin` on.
  RoutedCounts of_devices(int begin, int devices) const;
  bool operator==(const RoutedCounts&) const = default;
};

/// The engines of a mixture implement this interface too. It tells where their tokens went.
class RoutesTokens {
 public:
  virtual ~RoutesTokens() = default;
  /// Where the choices of the last forward went.
  virtual const RoutedCounts& routed() const = 0;
  /// How many copies of each expert there are. Each serves as many devices, which follow one another.
  virtual int copies() const { return 1; }
};

/// How evenly experts and devices were used, over many batches.
class ExpertBalance {
 public:
  /// Adds a batch, of experts that have so many copies each.
  void add(const RoutedCounts& counts, int copies = 1);
  /// A few lines: share of choices for each expert, choices dropped, load of the busiest device.
  std::string describe() const;

 private:
  /// Kept choices of the device that has the most of them.
  double busiest() const;

  int devices_ = 0;
  std::vector<Index> chosen_;             // by expert
  std::vector<std::vector<Index>> kept_;  // by copy and expert
};

}  // namespace shard
